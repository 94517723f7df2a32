import jax.numpy as jnp
import numpy as np

from ops import gather_slots, scatter_slots, soft_topk
from tests.ops import oracles

X = oracles.samples((3, 4, 12), dtype=np.float32)


def test_slots_hold_the_largest_of_the_mask():
    num_slots = 3
    mask = oracles.by_rows(oracles.pooled, X.reshape(12, 12), 4, 1.0).reshape(X.shape)
    found = soft_topk(X, 4, num_slots=num_slots, lam=1.0)
    assert found.weights.shape == found.indices.shape == (3, 4, num_slots)
    assert found.indices.dtype == jnp.int32
    np.testing.assert_allclose(np.take_along_axis(mask, np.asarray(found.indices), axis=-1), found.weights, atol=1e-6)
    order = np.argsort(-X, axis=-1, kind="stable")[..., :num_slots]
    np.testing.assert_array_equal(found.indices, order)
    np.testing.assert_allclose(found.overflow, 4 - np.asarray(found.weights).sum(axis=-1), atol=2e-6)
    assert (np.asarray(found.overflow) > 0).any()


def test_where_and_hard_slots():
    where = np.arange(12) % 2 == 0
    found = soft_topk(X, 3, num_slots=8, lam=0.5, where=where)
    assert (np.asarray(found.weights)[..., 6:] == 0).all()
    assert where[np.asarray(found.indices)[..., :6]].all()
    assert (np.asarray(found.overflow) == 0).all()
    # Zeros tie whatever their sign.
    hard = soft_topk(np.float32([[1, 2, 2, 2, 0], [-0.0, 0.0, -1, -1, -1]]), np.array([2, 1]), num_slots=2, lam=0.0)
    np.testing.assert_array_equal(hard.weights, [[1, 1], [1, 0]])
    np.testing.assert_array_equal(hard.indices, [[1, 2], [0, 1]])
    np.testing.assert_array_equal(hard.overflow, [0, 0])


def test_into_slots_and_back():
    rng = np.random.default_rng(0)
    tokens, weights = rng.normal(size=(3, 4, 8, 5)).astype(np.float32), rng.normal(size=(3, 4, 6)).astype(np.float32)
    indices = rng.integers(8, size=(3, 4, 6))
    slots = gather_slots(tokens, indices)
    np.testing.assert_array_equal(slots, np.take_along_axis(tokens, indices[..., None], axis=-2))
    expected = np.zeros((3, 4, 8, 5))
    for place in np.ndindex(3, 4, 6):
        expected[*place[:2], indices[place]] += weights[place] * np.asarray(slots)[place]
    back = scatter_slots(slots, indices, weights, 8, batch_dims=2)
    np.testing.assert_allclose(back, expected, rtol=1e-5, atol=1e-6)
    whole = scatter_slots(slots, indices, weights, 8)  # without a batch, slots of all rows are added up
    np.testing.assert_allclose(whole, expected.sum(axis=(0, 1)), rtol=1e-4, atol=1e-5)
    # 384, and what is added to it, which one by one bfloat16 would lose.
    whole = scatter_slots([[3]], [0], [0.5], 1)
    assert (whole.dtype, float(whole[0, 0])) == (jnp.float32, 1.5)
    half = scatter_slots(jnp.ones((3, 1), jnp.bfloat16) * 1.5, [0, 0, 0], [256.0, 0.5, 0.5], 1)
    assert (half.dtype, float(half[0, 0])) == (jnp.bfloat16, 386.0)
