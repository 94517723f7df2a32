"""The perturbed mask against the smoothed function it estimates, known in closed form for two entries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ops.baselines import perturbed_topk_mask
from tests.ops import oracles

X2 = np.array([0.3, -0.2])
LAM = 0.7


def test_mask_and_derivatives_are_unbiased(x64):
    def estimate(key):
        def first(x, lam):
            return perturbed_topk_mask(x, 1, lam=lam, num_samples=100, key=key)[0]

        value, (x_bar, lam_bar) = jax.value_and_grad(first, (0, 1))(X2, LAM)
        return jnp.array([value, *x_bar, lam_bar])

    values = jax.jit(jax.vmap(estimate))(jax.random.split(jax.random.key(0), 64))
    error = np.std(values, 0, ddof=1) / np.sqrt(64)
    # The probability that the first of two is the larger, and its derivatives.
    z = (X2[0] - X2[1]) / (LAM * np.sqrt(2))
    slope = stats.norm.pdf(z) / (LAM * np.sqrt(2))
    expected = np.array([stats.norm.cdf(z), slope, -slope, -slope * (X2[0] - X2[1]) / LAM])
    assert np.all(error < 0.03)
    assert np.all(np.abs(np.mean(values, 0) - expected) < 4 * error)


def test_each_row_has_its_own_noise():
    """Multiples of 1 / 8 that sum to k; hard with little noise, the same share for all with much."""
    x = np.tile(oracles.samples((1, 20), dtype=np.float32), (6, 1))
    x[5, 4:] = -np.inf
    k, lam = np.array([5, 5, 20, 5, 5, 5]), np.float32([0.5, 0.5, 0.5, 1e-6, 1e6, 0.5])

    def row(x, lam):
        y = perturbed_topk_mask(x, k, lam=lam, num_samples=8, key=jax.random.key(0))
        return jnp.sum(y[0] ** 2) + jnp.sum(y[5] ** 2), y

    (in_x, in_lam), y = jax.device_get(jax.jit(jax.grad(row, (0, 1), has_aux=True))(x, lam))
    np.testing.assert_allclose(y.sum(-1), [5, 5, 20, 5, 5, 4], rtol=1e-6)
    assert np.any(y[0] != y[1])
    np.testing.assert_array_equal(8 * y, np.round(8 * y))
    assert np.any((y[0] > 0) & (y[0] < 1))
    np.testing.assert_array_equal(y[3], oracles.hard(x[3], 5))
    np.testing.assert_allclose(y[4], np.full(20, 0.25), atol=4.5 * np.sqrt(0.25 * 0.75 / 8))
    np.testing.assert_array_equal(y[5], x[5] > -np.inf)
    assert np.isfinite(in_x).all()
    assert np.isfinite(in_lam).all()
    assert np.abs(in_x[0]).max() > 0
    for others in (in_x[1:5], in_x[5, 4:], in_lam[1:5]):
        assert not others.any()


def test_a_second_derivative_is_refused():
    def loss(x):
        return (perturbed_topk_mask(x, 1, num_samples=2, key=jax.random.key(0)) ** 2).sum()

    with pytest.raises(NotImplementedError, match="first derivatives only"):
        jax.eval_shape(jax.hessian(loss), np.float32([0.1, 0.2]))
