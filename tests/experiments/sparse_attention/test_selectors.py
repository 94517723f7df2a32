"""What each selector reads: never a later key, the k best at test, and a gradient for the keys that it says."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.sparse_attention.selectors import SELECTORS, Scores, hard
from ops import topk_mask

K, SLOTS, LENGTH = 2, 8, 12
VALUES = jax.random.normal(jax.random.key(0), (3, LENGTH, LENGTH))
ALLOWED = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))[None]


def scores(values=VALUES, lam=0.5, progress=0.9):
    return Scores(values, ALLOWED, K, SLOTS, jnp.float32(lam), jnp.float32(progress))


def spread(selection):
    """Weights by key, [B, L, L]."""
    if selection.keys is None:
        return selection.weights
    return jax.vmap(jax.vmap(lambda weights, keys: jnp.zeros(LENGTH).at[keys].add(weights)))(*selection)


@functools.cache
def read_and_gradient(name):
    """Weights by key, and the derivative of a random combination of them for the scores."""
    weights = jax.random.normal(jax.random.key(1), VALUES.shape)

    def objective(values):
        lam = 1.0 if name == "support" else 0.5
        spread_out = spread(SELECTORS[name].select(scores(values, lam)))
        return (weights * spread_out).sum(), spread_out

    gradient, read = jax.jit(jax.grad(objective, has_aux=True))(VALUES)
    return np.asarray(read), np.asarray(gradient)


def best(values, count):
    """The mask of the `count` best keys that are allowed, by NumPy."""
    ranks = np.argsort(np.argsort(-np.where(ALLOWED, values, -np.inf), axis=-1), axis=-1)
    return (ranks < count) & np.asarray(ALLOWED)


def test_at_test_the_k_best_keys_are_read():
    np.testing.assert_array_equal(spread(hard(scores())), best(np.asarray(VALUES), K))


@pytest.mark.parametrize("name", SELECTORS)
def test_queries_ignore_later_keys(name):
    read, gradient = read_and_gradient(name)
    later = np.broadcast_to(~np.asarray(ALLOWED), read.shape)
    assert not read[later].any()
    assert not gradient[later].any()
    assert np.isfinite(gradient).all()
    assert (read[:, 0, 0] == 1).all()  # the first query has one key


@pytest.mark.parametrize("name", ["straight_through", "sigmoid", "best_sigmoid", "best"])
def test_hard_selectors_read_the_k_best_keys(name):
    """Gives a gradient to more keys than are read."""
    read, gradient = read_and_gradient(name)
    np.testing.assert_array_equal(read, best(np.asarray(VALUES), K))
    with_gradient = (gradient != 0).sum(axis=-1)[:, SLOTS:]
    if name == "sigmoid":  # through its threshold, which depends on all
        assert (with_gradient == np.arange(SLOTS, LENGTH) + 1).all()
    elif name in ("best", "best_sigmoid"):
        assert (with_gradient == SLOTS).all()
    else:
        assert (with_gradient <= SLOTS).all()
        assert ((gradient != 0) & (read == 0)).any(axis=(1, 2)).all()  # of keys that are not read, too


def test_straight_through_uses_mask_gradient():
    weights = jax.random.normal(jax.random.key(1), VALUES.shape)
    expected = jax.grad(lambda values: (weights * topk_mask(values, K, lam=0.5, where=ALLOWED)).sum())(VALUES)
    np.testing.assert_allclose(read_and_gradient("straight_through")[1], expected, atol=1e-6)


def test_best_sigmoid_holds_its_threshold():
    weights, values = np.asarray(jax.random.normal(jax.random.key(1), VALUES.shape)), np.asarray(VALUES)
    ordered = np.sort(np.where(ALLOWED, values, -np.inf), axis=-1)
    threshold = 0.5 * (ordered[..., -K, None] + ordered[..., -K - 1, None])
    share = 1 / (1 + np.exp(-(values - threshold) / 0.5))
    expected = weights * share * (1 - share) / 0.5 * best(values, SLOTS)
    expected[:, :K] = 0.0  # these queries read all their keys
    np.testing.assert_allclose(read_and_gradient("best_sigmoid")[1], expected, atol=1e-6)


@pytest.mark.parametrize("name", ["support", "relaxed", "lapsum", "sparsek"])
def test_relaxed_ones_read_as_much_as_k_keys(name):
    read = read_and_gradient(name)[0]
    np.testing.assert_allclose(read.sum(axis=-1)[:, K:], K, rtol=1e-5)
    assert ((read > 0.01) & (read < 0.99)).any(axis=(1, 2)).all()  # which the hard mask is not
    if name == "support":  # a key beyond k has a weight, and one at the threshold a rounding error
        assert ((read > 1e-5).sum(axis=-1)[:, K:] == K + 1).all()


@pytest.mark.parametrize(("progress", "expected"), [(0.2, LENGTH), (0.6, K)])
def test_kl_sparse_reads_all_keys_at_first(progress, expected):
    read = spread(SELECTORS["kl_sparse"].select(scores(progress=progress)))
    assert np.count_nonzero(read[:, -1], axis=-1).tolist() == [expected] * 3
