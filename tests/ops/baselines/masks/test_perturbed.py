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
ROWS, N = 64, 20
INF = np.inf


@jax.jit
def slopes(x, k, lam, weights):
    """The mask, and the slopes of its weighted sum in ``x`` and ``lam``."""

    def total(x, lam):
        y = perturbed_topk_mask(x, k, lam=lam, num_samples=128, key=jax.random.key(0))
        return jnp.vdot(weights, y), y

    (in_x, in_lam), y = jax.grad(total, (0, 1), has_aux=True)(x, lam)
    return y, in_x, in_lam


def test_mask_and_derivatives_are_unbiased():
    """Each of the rows is an estimate, with noise of its own."""
    x, weights = np.full((ROWS, N), -INF, np.float32), np.zeros((ROWS, N), np.float32)
    x[:, :2], weights[:, 0] = X2, 1
    y, in_x, in_lam = jax.device_get(slopes(x, np.ones(ROWS, np.int32), np.full(ROWS, LAM, np.float32), weights))
    values = np.float64(np.stack([y[:, 0], in_x[:, 0], in_x[:, 1], in_lam], axis=1))
    error = np.std(values, 0, ddof=1) / np.sqrt(ROWS)
    # The probability that the first of two is the larger, and its derivatives.
    z = (X2[0] - X2[1]) / (LAM * np.sqrt(2))
    slope = stats.norm.pdf(z) / (LAM * np.sqrt(2))
    expected = np.array([stats.norm.cdf(z), slope, -slope, -slope * (X2[0] - X2[1]) / LAM])
    assert np.all(error < 0.03)
    assert np.all(np.abs(np.mean(values, 0) - expected) < 4 * error)


def test_each_row_has_its_own_noise():
    """Multiples of 1 / 128 that sum to k; hard with little noise, the same share for all with much."""
    x, weights = np.tile(oracles.samples((1, N), dtype=np.float32), (ROWS, 1)), np.zeros((ROWS, N), np.float32)
    x[5, 4:] = -INF
    x[6:9, :6] = [[1, 3, 3, 3, 3, 3], [INF, -INF, INF, 1, 1, 1], [np.nan, 1, 2, 3, 4, 5]]
    weights[[0, 5, 6, 7]] = oracles.samples(N, 1)
    k, lam = np.full(ROWS, 5), np.full(ROWS, 0.5, np.float32)
    k[2], lam[3:5], lam[6:11] = 20, [1e-6, 1e6], [0, 0, 0, -1, INF]
    y, in_x, in_lam = jax.device_get(slopes(x, k, lam, weights))
    np.testing.assert_allclose(y[:8].sum(-1), [5, 5, 20, 5, 5, 4, 5, 5], rtol=1e-6)
    assert np.any(y[0] != y[1])
    np.testing.assert_array_equal(128 * y[:8], np.round(128 * y[:8]))
    assert np.any((y[0] > 0) & (y[0] < 1))
    for row in (3, 6, 7):
        np.testing.assert_array_equal(y[row], oracles.hard(x[row], 5))
    np.testing.assert_allclose(y[4], np.full(N, 0.25), atol=4.5 * np.sqrt(0.25 * 0.75 / 128))
    np.testing.assert_array_equal(y[5], x[5] > -INF)
    assert np.isnan(y[8:11]).all()
    assert np.isfinite(in_x[:8]).all()
    assert np.isfinite(in_lam[:8]).all()
    assert np.abs(in_x[0]).max() > 0
    for others in (in_x[1:5], in_x[5, 4:], in_lam[1:5], in_x[6:8], in_lam[6:8]):
        assert not others.any()


def test_a_second_derivative_is_refused():
    def loss(x):
        return (perturbed_topk_mask(x, 1, num_samples=2, key=jax.random.key(0)) ** 2).sum()

    with pytest.raises(NotImplementedError, match="first derivatives only"):
        jax.eval_shape(jax.hessian(loss), np.float32([0.1, 0.2]))
