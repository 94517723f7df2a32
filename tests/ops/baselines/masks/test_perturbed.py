"""The perturbed mask against the smoothed function it estimates, known in closed form for two entries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ops.baselines import perturbed_topk_mask
from tests.ops import oracles

X2 = np.array([0.3, -0.2])
SIGMA = 0.7


def first_of_two(x, sigma):
    """The probability that the first of two is the larger, and its derivatives in ``x`` and ``sigma``."""
    scale = sigma * np.sqrt(2)
    z = (x[0] - x[1]) / scale
    slope = stats.norm.pdf(z) / scale
    return stats.norm.cdf(z), np.array([slope, -slope]), -slope * (x[0] - x[1]) / sigma


def independent_means(function, repeats=64):
    """Mean and standard error of ``function(key)`` over keys."""
    values = jax.jit(jax.vmap(function))(jax.random.split(jax.random.key(0), repeats))
    return np.mean(values, 0), np.std(values, 0, ddof=1) / np.sqrt(repeats)


def test_mask_and_derivatives_of_two_entries_are_unbiased(x64):
    def estimate(key):
        def first(x, sigma):
            return perturbed_topk_mask(x, 1, sigma=sigma, num_samples=100, key=key)[0]

        value, (x_bar, sigma_bar) = jax.value_and_grad(first, (0, 1))(X2, SIGMA)
        return jnp.array([value, *x_bar, sigma_bar])

    mean, error = independent_means(estimate)
    value, x_bar, sigma_bar = first_of_two(X2, SIGMA)
    assert np.all(error < 0.03)
    assert np.all(np.abs(mean - np.array([value, *x_bar, sigma_bar])) < 4 * error)


def test_forward_and_reverse_mode_agree_and_the_mask_is_unchanged(x64):
    x, x_dot, y_bar = np.random.default_rng(0).normal(size=(3, 2, 6))

    @jax.jit
    def both_modes(x_dot, y_bar):
        def operator(x, sigma):
            return perturbed_topk_mask(x, 2, sigma=sigma, num_samples=30, key=jax.random.key(1))

        _, y_dot = jax.jvp(operator, (x, 0.5), (x_dot, 0.7))
        return y_dot, *jax.vjp(operator, x, 0.5)[1](y_bar)

    y_dot, x_bar, sigma_bar = both_modes(x_dot, y_bar)
    assert np.abs(y_dot).max() > 0.1
    np.testing.assert_allclose(np.vdot(y_dot, y_bar), np.vdot(x_dot, x_bar) + 0.7 * sigma_bar, rtol=1e-10)
    # The mask sums to k, so its derivative sums to 0, and rows do not see one another.
    np.testing.assert_allclose(y_dot.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_array_equal(both_modes(x_dot * [[1], [0]], y_bar)[1], x_bar)
    np.testing.assert_array_equal(both_modes(x_dot, y_bar * [[1], [0]])[1][1], np.zeros(6))


def test_sums_to_k_and_consists_of_multiples():
    x = np.tile(np.random.default_rng(0).normal(size=20).astype(np.float32), (3, 1))
    y = np.asarray(perturbed_topk_mask(x, np.array([5, 5, 20]), sigma=0.5, num_samples=8, key=jax.random.key(0)))
    np.testing.assert_allclose(y.sum(-1), [5, 5, 20], rtol=1e-6)
    assert np.any(y[0] != y[1])  # rows have noise of their own
    np.testing.assert_array_equal(8 * y, np.round(8 * y))
    assert 0 < y[0].max() < 1.01
    assert np.any((y > 0) & (y < 1))


def test_little_noise_gives_the_hard_mask_and_much_gives_the_same_share_to_all():
    x = np.random.default_rng(0).normal(size=20).astype(np.float32)
    key = jax.random.key(0)
    little = perturbed_topk_mask(x, 5, sigma=1e-6, key=key, num_samples=2000)
    np.testing.assert_array_equal(little, oracles.hard(x, 5))
    even = perturbed_topk_mask(x, 5, sigma=1e6, key=key, num_samples=2000)
    np.testing.assert_allclose(even, np.full(20, 0.25), atol=4.5 * np.sqrt(0.25 * 0.75 / 2000))


def test_minus_infinity_is_absent_and_has_no_derivative():
    x = np.float32([[-np.inf, 1, 0.8, 0.9], [-np.inf, -np.inf, -np.inf, 2]])

    def loss(x, sigma):
        y = perturbed_topk_mask(x, 2, sigma=sigma, num_samples=20, key=jax.random.key(0))
        return jnp.sum(y**2), y

    (_, y), gradients = jax.device_get(jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(x, 0.5))
    assert all(np.isfinite(leaf).all() for leaf in gradients)
    np.testing.assert_allclose(y.sum(-1), [2, 1], rtol=1e-6)
    np.testing.assert_array_equal(y[x == -np.inf], np.zeros(4))
    np.testing.assert_array_equal(gradients[0][x == -np.inf], np.zeros(4))
    assert np.abs(gradients[0][0, 1:]).max() > 0


def test_a_second_derivative_is_refused():
    def loss(x):
        return (perturbed_topk_mask(x, 1, num_samples=2, key=jax.random.key(0)) ** 2).sum()

    with pytest.raises(NotImplementedError, match="first derivatives only"):
        jax.eval_shape(jax.hessian(loss), np.float32([0.1, 0.2]))
