"""What holds whatever the data. All examples share one shape, so that each operator compiles once per ``p``."""

import hypothesis.extra.numpy as hnp
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops import topk_mag, topk_mask

SHAPE = (20, 40)
DRAWN = 8


def matrix(drawn, seed):
    """Rows of few values, as hypothesis draws and shrinks them, above rows of many: half of these are 0 or 1."""
    rng = np.random.default_rng(seed)
    shape = SHAPE[0] - DRAWN, SHAPE[1]
    rows = np.where(rng.random(shape) < 0.5, rng.integers(-300, 301, shape), 64 * rng.integers(0, 2, shape))
    return np.concatenate([drawn, rows]) / 64


# Whole numbers that may repeat are drawn once for many entries; all 800 one by one take a hundred times as long as the
# operators do. Few distinct values make ties likely.
ENTRIES = st.builds(
    matrix,
    hnp.arrays(np.int64, (DRAWN, SHAPE[1]), elements=st.integers(-300, 300)),
    st.integers(0, 2**32 - 1),
)
KS = st.one_of(st.integers(0, 40).map(float), st.floats(0, 40))
LAMS = st.floats(-3, 3).map(lambda e: 10.0**e)
PS = pytest.mark.parametrize("p", [4 / 3, 2.0])


def mask(x, k, lam, p):
    with jax.enable_x64(True):
        return np.asarray(topk_mask(x, k, lam=lam, p=p))


def mag(x, k, lam, p, debias=False):
    with jax.enable_x64(True):
        return np.asarray(topk_mag(x, k, lam=lam, p=p, debias=debias))


def ranks(x):
    return np.argsort(x, -1, kind="stable")


@PS
@given(ENTRIES, KS, LAMS)
def test_mask_lies_in_the_polytope(p, x, k, lam):
    y = mask(x, k, lam, p)
    assert y.min() >= 0
    assert y.max() <= 1
    np.testing.assert_allclose(y.sum(-1), k, rtol=1e-10, atol=1e-12)


@PS
@given(ENTRIES, KS, LAMS)
def test_mask_preserves_order(p, x, k, lam):
    y = mask(x, k, lam, p)
    assert np.all(np.diff(np.take_along_axis(y, ranks(x), -1)) >= 0)
    equal = x[:, :-1] == x[:, 1:]
    assert np.all((y[:, :-1] == y[:, 1:])[equal])


@PS
@given(ENTRIES, KS, LAMS, st.integers(-1000, 1000))
def test_mask_ignores_shifts(p, x, k, lam, shift):
    np.testing.assert_allclose(mask(x + shift, k, lam, p), mask(x, k, lam, p), rtol=0, atol=1e-9)


@PS
@given(ENTRIES, KS, LAMS, st.sampled_from([1e-28, 0.125, 3.0, 1e28]))
def test_mask_scales_with_lam(p, x, k, lam, scale):
    np.testing.assert_allclose(mask(scale * x, k, scale * lam, p), mask(x, k, lam, p), rtol=0, atol=1e-9)


@PS
@given(ENTRIES, KS, LAMS, st.randoms(use_true_random=False))
def test_permutation_equivariance(p, x, k, lam, random):
    order = np.array(random.sample(range(SHAPE[1]), SHAPE[1]))
    np.testing.assert_allclose(mask(x[:, order], k, lam, p), mask(x, k, lam, p)[:, order], rtol=0, atol=1e-9)
    np.testing.assert_allclose(mag(x[:, order], k, lam, p), mag(x, k, lam, p)[:, order], rtol=0, atol=1e-9)


@PS
@given(ENTRIES, KS, LAMS)
def test_magnitude_follows_signs(p, x, k, lam):
    y = mag(x, k, lam, p)
    np.testing.assert_array_equal(mag(-x, k, lam, p), -y)
    np.testing.assert_array_equal(mag(np.abs(x), k, lam, p), np.abs(y))
    assert np.all(y * x >= 0)


@PS
@given(ENTRIES, KS, LAMS)
def test_magnitude_never_exceeds_its_input(p, x, k, lam):
    shrunk, debiased = np.abs(mag(x, k, lam, p)), np.abs(mag(x, k, lam, p, debias=True))
    # The debiased value is |x| less what is taken of it, so its rounding error is relative to |x|.
    assert np.all(shrunk <= debiased + 1e-12 * np.abs(x))
    assert np.all(debiased <= np.abs(x) * (1 + 1e-12))
    assert np.all(np.diff(np.take_along_axis(shrunk, ranks(np.abs(x)), -1)) >= -1e-12)


@given(ENTRIES, KS, LAMS, st.sampled_from([1e-20, 1e20]))
def test_magnitude_is_homogeneous_at_p_2(x, k, lam, scale):
    expected = scale * mag(x, k, lam, 2.0)
    np.testing.assert_allclose(mag(scale * x, k, lam, 2.0), expected, rtol=1e-9, atol=1e-12 * scale)


@given(ENTRIES, st.integers(1, 39))
def test_error_of_magnitude_is_bounded_by_lam(x, k):
    # Section 5: lam |x|_inf, while the k-th and (k+1)-th magnitudes are further apart than the relaxation.
    s = np.sort(np.abs(x), -1)[:, ::-1]
    apart = s[:, k - 1] > s[:, k] * 1.02
    hard = np.where(np.abs(x) >= s[:, k - 1 : k], x, 0.0)
    error = np.abs(mag(x, float(k), 0.01, 2.0) - hard).max(-1)
    assert np.all(error[apart] <= 0.01 * s[apart, 0] * (1 + 1e-9))
