import jax
import numpy as np
import pytest

import ops
from tests.ops import oracles

X = oracles.samples((6, 40), 3)
traced = jax.jit(ops.lam_of_support)


@pytest.mark.usefixtures("x64")
def test_lam_is_largest_for_the_support():
    k, support, p = np.array([3, 3, 3, 7.5, 20, 39]), np.array([3, 4, 39, 20, 21, 39]), 4 / 3
    lam = ops.lam_of_support(X, k, support, p=p)
    for factor, more in ((1 - 1e-9, 0), (1 + 1e-9, 1)):
        nonzeros = np.count_nonzero(ops.topk_mask(X, k, lam=lam * factor, p=p), axis=-1)
        np.testing.assert_array_equal(nonzeros, support + more)


def bisected(x, k, support, p, in_magnitude):
    """At the threshold of the first entry left out, in long doubles: the ``lam`` of one row."""
    s = -np.sort(-np.longdouble(np.abs(x) if in_magnitude else x))
    gamma = s[support]
    apart = np.log(s[:support] - gamma)
    slope = np.log(gamma) if in_magnitude else 0
    low, high = np.longdouble(-200), np.longdouble(200)
    for _ in range(100):
        middle = (low + high) / 2
        more = np.exp(np.minimum((apart - middle) / (np.longdouble(p) - 1) - slope, 0)).sum() >= k
        low, high = (middle, high) if more else (low, middle)
    return np.clip(np.exp(low), 0, 1e32)


def test_accurate_for_p_near_1_and_any_scale():
    p, in_magnitude = 1.0001, True
    k, support = np.float32([3, 3, 3.5, 1, 20, 7.01]), np.array([3, 5, 20, 39, 30, 9])
    scales = np.float32([1e-30, 1e-10, 1, 1e10, 1e30])
    x = scales[:, None, None] * X.astype(np.float32)[None]
    found = ops.lam_of_support(x, k[None, :], support[None, :], in_magnitude=in_magnitude, p=p)
    expected = [[bisected(*row, p, in_magnitude) for row in zip(rows, k, support, strict=True)] for rows in x]
    np.testing.assert_allclose(found, np.float64(expected), rtol=3e-6, atol=1e-37)


def test_support_below_k_gives_lam_0():
    """A support of all entries gives the largest lam; a known one below k is refused."""
    lam = traced(X, np.full(6, 10.0), np.array([0, 9, 9, 40, 40, 40]))
    np.testing.assert_array_equal(lam, np.float32([0, 0, 0, 1e32, 1e32, 1e32]))
    with pytest.raises(ValueError, match=r"support must be at least k, got support=9 with k=9\.5"):
        ops.lam_of_support(X, np.array([9, 9.5, 9, 9, 9, 9]), 9)


def padded(rows, fill):
    """Rows of 40, compiled before."""
    return np.stack([np.r_[row, np.full(40 - len(row), fill)] for row in rows]).astype(np.float32)


def test_row_of_nothing_leaves_none_out():
    assert ops.lam_of_support(np.zeros(0, np.float32), 0, 0) == np.float32(1e32)


def test_ties_at_the_end_are_all_in_or_out():
    x = padded([[3, 2, 2, 1], [3, 2, 2, 1], 4 * [2], 4 * [2], [1, np.nan, 3], [1, np.inf, 3]], -np.inf)
    lam = traced(x, np.ones(6), np.array([2, 3, 2, 3, 2, 2]))
    softest = oracles.by_rows(oracles.pooled, x[:2], 1, np.asarray(lam)[:2] * 0.999)
    np.testing.assert_array_equal(np.count_nonzero(softest, axis=-1), [1, 3])
    np.testing.assert_array_equal(lam[2:], [0, 0, np.nan, np.nan])


def test_magnitude_never_selects_zeros():
    x, k, support = padded(6 * [[2, -1]], 0), np.array([1, 3, 3, 2, 3, 3]), np.array([2, 3, 2, 2, 1, 2])
    found = jax.jit(lambda support: ops.lam_of_support(x, k, support, in_magnitude=True))(support)
    np.testing.assert_array_equal(found, np.float32([1e32, 1e32, 1e32, 1e32, 0, 1e32]))
    assert np.count_nonzero(oracles.pooled(x[0], 3, 1e30, kind="mag")) == 2
    shares = ops.lam_of_support(padded(6 * [[2, -1, 0, 0]], -np.inf), 3, 3)
    assert ((shares > 0) & (shares < 10)).all()  # of the mask a zero has its share


def test_excluded_entries_are_as_if_absent():
    where = np.arange(40) % 3 > 0
    expected = [bisected(row, 5, 12, 2.0, False) for row in X[:, where]]
    absent = np.where(where, X, -np.inf)
    np.testing.assert_allclose(traced(absent, np.full(6, 5.0), np.full(6, 12)), expected, rtol=1e-5)
    np.testing.assert_allclose(ops.lam_of_support(X.T, 5, 12, axis=0, where=where[:, None]), expected, rtol=1e-5)


def test_its_derivatives_are_zero():
    """JAX refuses to go backwards through the loop, if anything that moves with ``x`` were to enter it."""
    jax.eval_shape(jax.grad(lambda x: ops.lam_of_support(x, 3, 9)), X[0])
