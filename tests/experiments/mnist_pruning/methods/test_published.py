"""The derivative that the published code has of the top-k in magnitude, and how it differs from the exact one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import ops
from experiments.mnist_pruning.methods import METHODS
from experiments.mnist_pruning.methods.published import TOLERANCE
from tests.experiments.support import small_config

N, K = 40, 8
RNG = np.random.default_rng(0)
PULL = RNG.normal(size=N).astype(np.float32)
MIXED = RNG.permutation(RNG.choice([-1, 1], N) * (0.1 + 8e-5 * np.arange(N) + 1e-3 * (np.arange(N) // 7)))


@functools.partial(jax.jit, static_argnums=(1, 2))
def pulled(w, lam, form):
    """The pruned weights, and the gradient in `w`."""
    config = small_config("relaxed", density=K / N, lam__start=lam, form=form)
    weights, pull_back = jax.vjp(lambda w: METHODS["relaxed"].make(config, 10).weights(w, {}, jnp.float32(0), None), w)
    return weights, pull_back(jnp.asarray(PULL))[0]


def gradient(w, lam, form="published_jacobian"):
    return np.asarray(pulled(jnp.float32(w), lam, form)[1])


def by_loops(w, lam):
    """In float64, block by block of the solution of the isotonic problem."""
    w = np.asarray(w, float)
    order = np.argsort(-np.abs(w))
    kept = np.asarray(jax.jit(ops.topk_mag, static_argnums=1)(jnp.float32(w), K, lam=lam), float)
    solution = (np.abs(w) - lam * np.abs(kept))[order]
    blocks = np.split(order, 1 + np.flatnonzero(-np.diff(solution) > TOLERANCE))
    expected, selected = np.zeros(N), set(order[:K].tolist())
    for block in blocks:
        of_sizes = np.sign(w[block]) * PULL[block]
        mean = of_sizes.sum() / sum(1 + lam * (i in selected) for i in block.tolist())
        expected[block] = np.sign(w[block]) * (of_sizes - mean) / lam
    return len(blocks), expected


def test_exact_gradient_without_near_ties():
    apart = np.linspace(-0.97, 0.93, N)
    assert np.diff(np.sort(np.abs(apart))).min() > TOLERANCE
    exact = gradient(apart, 0.2, "operator")
    forward = [pulled(jnp.float32(apart), 0.2, form)[0] for form in ("operator", "published_jacobian")]
    np.testing.assert_array_equal(*forward)
    assert np.count_nonzero(exact) > K  # the block at the threshold has more than are kept
    np.testing.assert_allclose(gradient(apart, 0.2), exact, rtol=1e-3, atol=1e-4)


def test_close_neighbours_are_a_block():
    lam = 1e-2
    count, expected = by_loops(MIXED, lam)
    assert 1 < count < 12
    np.testing.assert_allclose(gradient(MIXED, lam), expected, rtol=1e-3, atol=2e-3 / lam * 1e-3)
