"""The hard operators of what random problems do not hold: integers, a million entries, numbers too small or alike."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import hard_topk_mag, hard_topk_mask, relaxed_topk, relaxed_topk_value, soft_rank, topk_mag, topk_mask
from tests.ops import oracles


def test_a_million_entries():
    x = np.round(oracles.samples((1, 1_000_000), dtype=np.float32), 3)  # with many ties
    np.testing.assert_array_equal(hard_topk_mask(x, 100_000)[0], oracles.hard(x[0], 100_000))


INTEGERS = {
    np.int32: [2**24, 2**24 + 1, -(2**31), 2**31 - 1, 2**31 - 2, 0, -1, 2**24 + 1, -(2**31) + 1, 2**16, 2**16 - 1],
    np.int64: [2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**63 - 2, 0, -1, 2**53 + 1, -(2**63) + 1, 2**32, 2**32 - 1],
}


def exact_mask(values, k, magnitude=False):
    """The k largest of Python's integers, the first of equals first."""
    order = sorted(range(len(values)), key=lambda i: -abs(int(values[i])) if magnitude else -int(values[i]))
    return np.isin(np.arange(len(values)), order[:k]).astype(float)


def test_integers_are_compared_exactly(x64):
    x = np.array(INTEGERS[np.int64])
    x = np.stack([x, x[::-1]])
    both = jax.jit(lambda x, k: (hard_topk_mask(x, k), hard_topk_mag(x, k)))
    for k in range(x.shape[1] + 1):
        mask, kept = both(x, k)
        np.testing.assert_array_equal(mask, np.stack([exact_mask(row, k) for row in x]))
        chosen = np.stack([exact_mask(row, k, magnitude=True) for row in x])
        np.testing.assert_array_equal(kept, chosen * x.astype(kept.dtype))


def test_integers_at_lam_0():
    x = np.array(INTEGERS[np.int32], np.int32)
    chosen = exact_mask(x, 2, magnitude=True)
    np.testing.assert_array_equal(topk_mag(x, 2, lam=0), chosen * x.astype(np.float32))
    np.testing.assert_array_equal(relaxed_topk(x, 2, phi="abs", lam=0), chosen * np.sign(x))


def test_integers_with_axis_where_and_real_k():
    x = np.array([[2**24, 5], [2**24 + 1, 2**24 + 1], [2**24 + 2, 2**24], [-7, 2**24 + 1]], np.int32)
    where = np.array([[True], [True], [False], [True]])
    np.testing.assert_array_equal(hard_topk_mask(x, 1, axis=0, where=where), [[0, 0], [1, 1], [0, 0], [0, 0]])
    np.testing.assert_array_equal(
        topk_mask(x, np.array([1.5, 2.25]), lam=0, axis=0), [[0, 0], [0.5, 1], [1, 0.25], [0, 1]]
    )
    np.testing.assert_array_equal(hard_topk_mask(x, 4, axis=0, where=where)[:, 0], [1, 1, 0, 1])


def test_too_large_integers_are_refused():
    x = np.array([2**24, 2**24 + 1], np.int32)
    for function in (topk_mask, topk_mag, soft_rank, relaxed_topk_value):
        with pytest.raises(ValueError, match=r"^x must be whole numbers up to 16777216 .* got 16777217; give floats"):
            function(x, **{} if function is soft_rank else {"k": 1})
    topk_mask(x - 1, 1)
    with pytest.raises(ValueError, match=r"^x must be whole numbers that int32 holds; others need jax_enable_x64$"):
        hard_topk_mask(np.array([2**40, 1]), 1)


def test_k_must_be_exact_in_float32():
    long = jax.ShapeDtypeStruct((2**25,), jnp.float32)
    with pytest.raises(ValueError, match=r"^k must be a number that float32 holds exactly, got 16777217"):
        jax.eval_shape(lambda x: hard_topk_mask(x, 2**24 + 1), long)
    assert jax.eval_shape(lambda x: hard_topk_mask(x, 2**24 + 2), long).shape == (2**25,)
