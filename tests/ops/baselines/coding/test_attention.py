"""Sparse attention against the oracle (sparsemax), and against non-negative least squares (nearest point)."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from ops.baselines.coding import scale_free_attention, sparsemax_attention
from tests.ops import oracles

FEATURES, ATOMS = 6, 9
D = oracles.samples((FEATURES, ATOMS))
X = oracles.samples((2, 3, FEATURES), 1) * np.array([0.1, 1.0, 3.0])[:, None]  # inside the convex hull and outside


def nearest_by_nnls(x, dictionary):
    """With a weight so large on `sum(y) = 1` that what is left of it is divided out."""
    y = optimize.nnls(np.vstack([dictionary, 1e6 * np.ones(dictionary.shape[1])]), np.r_[x, 1e6])[0]
    return y / y.sum()


def distances(weights, x):
    return np.linalg.norm(x - np.asarray(weights) @ D.T, axis=-1)


def test_finds_nearest_point_of_convex_hull(x64):
    found = scale_free_attention(X, D, tol=1e-13, max_iter=20_000)
    weights = np.asarray(found.code)
    assert np.all(found.converged)
    assert found.iterations.shape == found.gap.shape == (2, 3)
    assert weights.min() == 0
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-12)
    for index in np.ndindex(2, 3):
        # Where the point is inside, the weights are not unique, but what they add up to is.
        np.testing.assert_allclose(D @ weights[index], D @ nearest_by_nnls(X[index], D), atol=1e-6)
    outside = distances(weights, X) > 1e-3
    assert outside.sum() >= 2
    unique = np.stack([nearest_by_nnls(x, D) for x in X[outside]])
    np.testing.assert_allclose(weights[outside], unique, atol=1e-6)


def test_the_gap_bounds_the_error(x64):
    best = distances(np.stack([[nearest_by_nnls(x, D) for x in rows] for rows in X]), X)
    largest = np.max(np.sum((X[..., None] - D) ** 2, axis=-2), axis=-1)
    for most in (0, 1, 5, 40):
        found = scale_free_attention(X, D, tol=1e-9, max_iter=most)
        excess = distances(found.code, X) ** 2 - best**2
        assert np.all(excess <= np.asarray(found.gap) * largest * (1 + 1e-6) + 1e-9)
        np.testing.assert_array_equal(found.converged, np.asarray(found.gap) <= 1e-9)
        assert np.all((np.asarray(found.iterations) == most) | found.converged)


def test_scale_does_not_matter():
    x, dictionary = np.float32(X), np.float32(D)
    weights = scale_free_attention(x, dictionary, tol=1e-6).code
    scale = np.float32(2.0**-40)  # a power of two, which rounds nothing
    np.testing.assert_array_equal(scale_free_attention(scale * x, scale * dictionary, tol=1e-6).code, weights)


def test_derivatives(x64):
    x, dictionary = 3.0 * X[0, :2], D[:, :5]

    def function(x, dictionary):
        return scale_free_attention(x, dictionary, tol=1e-15, max_iter=20_000).code

    weights = oracles.check_gradients(function, (x, dictionary))
    assert np.all((weights > 0).sum(-1) >= 2)


def test_common_shift_keeps_derivatives():
    x, dictionary = (np.round(1024 * value) / 1024 for value in (3.0 * X[0, :2], D[:, :5]))  # shifts round nothing

    def function(x, dictionary):
        weights = scale_free_attention(x, dictionary, tol=1e-6).code
        return jnp.sum(weights * jnp.arange(5.0)[None, :]), weights

    gradients = jax.jit(jax.grad(function, argnums=(0, 1), has_aux=True))
    slopes, weights = gradients(np.float32(x), np.ones((FEATURES, 5), np.float32))  # atoms that are all the same
    np.testing.assert_allclose(weights, np.full((2, 5), 0.2), rtol=1e-6)
    assert all(np.isfinite(slope).all() for slope in slopes)
    found, weights = gradients(np.float32(x + 1024), np.float32(dictionary + 1024))
    expected, unshifted = gradients(np.float32(x), np.float32(dictionary))
    assert np.all((np.asarray(weights) > 0).sum(-1) >= 2)
    np.testing.assert_allclose(weights, unshifted, atol=1e-5)
    for one, other in zip(found, expected, strict=True):
        assert np.abs(other).max() > 0.1
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_sparsemax_attention_matches_oracle(x64):
    query, keys, values = (oracles.samples(shape, seed) for seed, shape in enumerate([(2, 3, 4), (2, 7, 4), (2, 7, 5)]))
    where = oracles.samples((2, 3, 7), 5) > -0.3
    where[1, 2] = False
    attention = jax.jit(sparsemax_attention)
    found = np.asarray(attention(2.6 * query, keys, values, where=where))  # 2 = sqrt(4), of the features
    expected = np.zeros((2, 3, 5))
    for b, q in np.ndindex(2, 3):
        open_keys = np.flatnonzero(where[b, q])
        if open_keys.size:
            expected[b, q] = oracles.pooled(1.3 * keys[b, open_keys] @ query[b, q], 1, 1) @ values[b, open_keys]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert np.all(found[1, 2] == 0)
