"""What holds whatever the data. All examples share one shape, so that each operator compiles once."""

import hypothesis.extra.numpy as hnp
import jax
import numpy as np
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


def mask(x, k, lam, p):
    with jax.enable_x64(True):
        return np.asarray(topk_mask(x, k, lam=lam, p=p))


def mag(x, k, lam, p, debias=False):
    with jax.enable_x64(True):
        return np.asarray(topk_mag(x, k, lam=lam, p=p, debias=debias))


def ranks(x):
    return np.argsort(x, -1, kind="stable")


@given(ENTRIES, KS, LAMS, st.integers(-1000, 1000), st.sampled_from([1e-28, 0.125, 3.0, 1e28]))
def test_masks_lie_in_the_polytope_in_the_order_of_entries_whatever_shift_and_scale(x, k, lam, shift, scale):
    p = 4 / 3
    y = mask(x, k, lam, p)
    assert y.min() >= 0
    assert y.max() <= 1
    np.testing.assert_allclose(y.sum(-1), k, rtol=1e-10, atol=1e-12)
    assert np.all(np.diff(np.take_along_axis(y, ranks(x), -1)) >= 0)
    assert np.all((y[:, :-1] == y[:, 1:])[x[:, :-1] == x[:, 1:]])
    np.testing.assert_allclose(mask(x + shift, k, lam, p), y, rtol=0, atol=1e-9)
    np.testing.assert_allclose(mask(scale * x, k, scale * lam, p), y, rtol=0, atol=1e-9)


@given(ENTRIES, KS, LAMS, st.sampled_from([1e-20, 1e20]))
def test_magnitudes_follow_signs_and_never_exceed_their_input(x, k, lam, scale):
    p = 2.0
    y, debiased = mag(x, k, lam, p), np.abs(mag(x, k, lam, p, debias=True))
    np.testing.assert_array_equal(mag(-x, k, lam, p), -y)
    assert np.all(y * x >= 0)
    # The debiased value is |x| less what is taken of it, so its rounding error is relative to |x|.
    assert np.all(np.abs(y) <= debiased + 1e-12 * np.abs(x))
    assert np.all(debiased <= np.abs(x) * (1 + 1e-12))
    assert np.all(np.diff(np.take_along_axis(np.abs(y), ranks(np.abs(x)), -1)) >= -1e-12)
    np.testing.assert_allclose(mag(scale * x, k, lam, p), scale * y, rtol=1e-9, atol=1e-12 * scale)
