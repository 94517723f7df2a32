"""The hard operators against a stable sort."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import hard_topk_mag, hard_topk_mask, relaxed_topk, soft_rank, topk_mag, topk_mask, topk_sum
from tests.ops import oracles

N = 40
INF = np.inf
ROWS = {
    "normal": oracles.samples(N),
    "ties": np.round(oracles.samples(N, 1)),
    "equal": np.full(N, -2.0),
    "zeros": np.zeros(N),
    "signed zeros": np.where(np.arange(N) % 2, 0.0, -0.0),
    "signed zeros among others": np.r_[1.0, -1.0, np.where(np.arange(N - 2) % 3, 0.0, -0.0)],
    "plus inf": np.r_[np.zeros(10), np.full(9, INF), np.arange(N - 19.0)],
    "minus inf": np.r_[np.full(20, -INF), np.arange(N - 20.0)],
    "increasing": np.arange(float(N)),
    "decreasing": -np.arange(float(N)),
    "outlier": np.r_[np.zeros(N - 1), 3e38],
    "huge": np.linspace(-3e38, 3e38, N),
    "geometric": np.geomspace(1e-30, 1e30, N),
    "largest and inf": np.r_[np.full(4, np.finfo(np.float32).max), np.full(4, INF), np.zeros(N - 8)],
    "neighbours": 1.0 + np.arange(N) % 5 * 2.0**-23,
}
X = np.stack(list(ROWS.values())).astype(np.float32)


def test_masks_and_magnitudes_agree_with_a_stable_sort():
    for k in (0, 1, 6, 17, 20, np.arange(len(X))):
        ks = np.broadcast_to(k, len(X))
        expected = np.stack([oracles.hard(*row) for row in zip(X, ks, strict=True)])
        mask = hard_topk_mask(X, ks)
        wrong = [name for name, row, want in zip(ROWS, mask, expected, strict=True) if not np.array_equal(row, want)]
        assert wrong == []
        chosen = np.stack([oracles.hard(np.abs(x), k) for x, k in zip(X, ks, strict=True)])
        np.testing.assert_array_equal(hard_topk_mag(X, ks), np.where(chosen == 1, X, 0))
    mask = np.asarray(hard_topk_mask(X, 30))[list(ROWS).index("minus inf")]
    np.testing.assert_array_equal(mask, np.r_[np.zeros(20), np.ones(20)])


def test_ties_of_narrow_floats():
    dtype = jnp.bfloat16
    x = (100 + oracles.samples((len(X), N), dtype=np.float32)).astype(dtype)  # some ten distinct values
    mask = hard_topk_mask(x, 13)
    expected = np.stack([oracles.hard(np.asarray(row, np.float64), 13) for row in x])
    assert mask.dtype == dtype
    np.testing.assert_array_equal(np.asarray(mask, np.float64), expected)


def test_float64_distinguishes_what_float32_does_not(x64):
    x = 1.0 + np.arange(N)[::-1] * 1e-15 + np.zeros((len(X), 1))
    np.testing.assert_array_equal(np.asarray(hard_topk_mask(x, 3))[0], np.r_[np.ones(3), np.zeros(N - 3)])
    np.testing.assert_array_equal(np.asarray(hard_topk_mask(x[:, ::-1], 3))[0], np.r_[np.zeros(N - 3), np.ones(3)])


def test_subnormal_numbers():
    # XLA flushes them to zero on some devices, where they tie with it; the count holds all the same.
    x = np.broadcast_to(np.arange(N, dtype=np.float32) * 1e-42, X.shape)
    assert np.all(np.asarray(hard_topk_mask(x, 5)).sum(-1) == 5)


def test_a_million_entries():
    x = np.round(oracles.samples((1, 1_000_000), dtype=np.float32), 3)  # with many ties
    np.testing.assert_array_equal(hard_topk_mask(x, 100_000)[0], oracles.hard(x[0], 100_000))


INTEGERS = {
    np.int32: [2**24, 2**24 + 1, -(2**31), 2**31 - 1, 2**31 - 2, 0, -1, 2**24 + 1, -(2**31) + 1, 2**16, 2**16 - 1],
    np.uint32: [2**24, 2**24 + 1, 2**32 - 1, 2**32 - 2, 0, 1, 2**31, 2**31 + 1, 2**24 + 1, 2**16, 2**16 - 1],
    np.int64: [2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**63 - 2, 0, -1, 2**53 + 1, -(2**63) + 1, 2**32, 2**32 - 1],
}


def exact_mask(values, k, magnitude=False):
    """The k largest of Python's integers, the first of equals first."""
    order = sorted(range(len(values)), key=lambda i: -abs(int(values[i])) if magnitude else -int(values[i]))
    return np.isin(np.arange(len(values)), order[:k]).astype(float)


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
def test_integers_are_told_apart_that_floats_are_not(dtype):
    with jax.enable_x64(np.dtype(dtype).itemsize == 8):
        x = np.stack([np.array(INTEGERS[dtype], dtype), np.array(INTEGERS[dtype], dtype)[::-1]])
        functions = jax.jit(hard_topk_mask), jax.jit(hard_topk_mag)
        for k in range(x.shape[1] + 1):
            mask, kept = (function(x, k) for function in functions)
            np.testing.assert_array_equal(mask, np.stack([exact_mask(row, k) for row in x]))
            chosen = np.stack([exact_mask(row, k, magnitude=True) for row in x])
            np.testing.assert_array_equal(kept, chosen * x.astype(kept.dtype))


def test_integers_at_lam_0():
    x = np.array(INTEGERS[np.int32], np.int32)
    chosen = exact_mask(x, 2, magnitude=True)
    np.testing.assert_array_equal(topk_mask(x, 2, lam=0), exact_mask(x, 2))
    np.testing.assert_array_equal(topk_mag(x, 2, lam=0), chosen * x.astype(np.float32))
    np.testing.assert_array_equal(relaxed_topk(x, 2, phi="abs", lam=0), chosen * np.sign(x))


def test_integers_along_an_axis_some_absent_and_k_real():
    x = np.array([[2**24, 5], [2**24 + 1, 2**24 + 1], [2**24 + 2, 2**24], [-7, 2**24 + 1]], np.int32)
    where = np.array([[True], [True], [False], [True]])
    np.testing.assert_array_equal(hard_topk_mask(x, 1, axis=0, where=where), [[0, 0], [1, 1], [0, 0], [0, 0]])
    np.testing.assert_array_equal(
        topk_mask(x, np.array([1.5, 2.25]), lam=0, axis=0), [[0, 0], [0.5, 1], [1, 0.25], [0, 1]]
    )
    np.testing.assert_array_equal(hard_topk_mask(x, 4, axis=0, where=where)[:, 0], [1, 1, 0, 1])


def test_integers_that_would_be_rounded_are_refused_where_they_are_not_compared_as_such():
    x = np.array([2**24, 2**24 + 1], np.int32)
    for function in (topk_mask, topk_mag, soft_rank, topk_sum):
        with pytest.raises(ValueError, match=r"^x must be whole numbers up to 16777216 .* got 16777217; give floats"):
            function(x, **{} if function is soft_rank else {"k": 1})
    topk_mask(x - 1, 1)
    with pytest.raises(ValueError, match=r"^x must be whole numbers that int32 holds; others need jax_enable_x64$"):
        hard_topk_mask(np.array([2**40, 1]), 1)


def test_a_k_that_float32_does_not_hold_is_refused_and_others_are_not():
    long = jax.ShapeDtypeStruct((2**25,), jnp.float32)
    with pytest.raises(ValueError, match=r"^k must be a number that float32 holds exactly, got 16777217"):
        jax.eval_shape(lambda x: hard_topk_mask(x, 2**24 + 1), long)
    assert jax.eval_shape(lambda x: hard_topk_mask(x, 2**24 + 2), long).shape == (2**25,)
