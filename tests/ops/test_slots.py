import jax
import jax.numpy as jnp
import numpy as np

from ops import gather_slots, scatter_slots, soft_topk
from tests.ops import oracles

X = oracles.samples((3, 4, 12), dtype=np.float32)


def masks(x, k):
    """For lam = 1."""
    return oracles.by_rows(oracles.pooled, x.reshape(-1, x.shape[-1]), k, 1.0).reshape(x.shape)


def test_slots_hold_the_largest_of_the_mask_and_say_what_is_left():
    num_slots = 3
    mask = masks(X, 4)
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


def test_there_and_back_is_the_mask_times_the_tokens():
    tokens = oracles.samples((12, 5), 3).astype(np.float32)

    def there_and_back(x, tokens):
        weights, indices, _ = soft_topk(x, 4, num_slots=12, lam=1.0)
        return scatter_slots(gather_slots(tokens, indices), indices, weights, 12)

    @jax.jit
    def with_gradients(x, tokens):
        y, pull = jax.vjp(there_and_back, x, tokens)
        return y, *pull(jnp.cos(y))

    y, in_x, in_tokens = with_gradients(X[0], tokens)
    mask = masks(X[0], 4)
    shares = mask.sum(axis=0)[:, None]
    np.testing.assert_allclose(y, shares * tokens, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(in_tokens, shares * np.cos(shares * tokens), rtol=1e-4, atol=1e-5)
    # The mask changes by what changes of the entries selected in part, less its mean.
    partly = (mask > 0) & (mask < 1)
    pull = np.where(partly, (np.cos(shares * tokens) * tokens).sum(axis=1), 0)
    pull -= partly * pull.sum(axis=1, keepdims=True) / partly.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(in_x, pull, rtol=1e-4, atol=1e-5)
    # 384, and what is added to it, which one by one bfloat16 would lose.
    whole = scatter_slots([[3]], [0], [0.5], 1)
    assert (whole.dtype, float(whole[0, 0])) == (jnp.float32, 1.5)
    half = scatter_slots(jnp.ones((3, 1), jnp.bfloat16) * 1.5, [0, 0, 0], [256.0, 0.5, 0.5], 1)
    assert half.dtype == jnp.bfloat16
    assert float(half[0, 0]) == 386.0


def test_slots_of_a_batch_there_and_back():
    batch = (3, 4)
    scores = X[..., :8]
    tokens = oracles.samples((*batch, 8, 5), 3).astype(np.float32)
    weights, indices, _ = soft_topk(scores, 2, num_slots=6, lam=1.0)
    slots = gather_slots(tokens, indices)
    np.testing.assert_array_equal(slots, np.take_along_axis(tokens, np.asarray(indices)[..., None], axis=-2))
    back = scatter_slots(slots, indices, weights, 8, batch_dims=len(batch))
    inside = np.argsort(np.argsort(-scores)) < 6
    mask = np.where(inside, masks(scores, 2), 0)
    np.testing.assert_allclose(back, mask[..., None] * tokens, rtol=1e-5, atol=1e-6)
    # Without a batch, slots of all rows are added up.
    whole = scatter_slots(slots, indices, weights, 8)
    np.testing.assert_allclose(whole, np.asarray(back).sum(axis=tuple(range(len(batch)))), rtol=1e-4, atol=1e-5)
