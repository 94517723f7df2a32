"""The mask with its threshold halfway between the k-th largest entry and the next."""

import jax
import numpy as np

from ops.baselines import dftopk_mask
from tests.ops import oracles


def test_agrees_with_the_formula(x64):
    x, where = oracles.samples((6, 40)), np.arange(40) % 5 > 0
    s = -np.sort(-x[:, where], axis=-1)
    for k, lam in [(7, 0.1), (31, 2.0)]:
        tau = (s[:, k - 1 : k] + s[:, k : k + 1]) / 2
        expected = np.where(where, 1 / (1 + np.exp((tau - x) / lam)), 0)
        found = dftopk_mask(np.where(where, x, np.nan), k, lam=lam, where=where)
        np.testing.assert_allclose(found, expected, atol=1e-13)


def test_extreme_rows_have_finite_gradients():
    """Two rows have at most k entries above -inf, and so no threshold."""
    inf = np.inf
    x = [[0.3, -inf, -inf, -inf], [0.3, 0.1, -inf, -inf], [3e38, -3e38, inf, 0], [1, 1, 1, 1], [np.nan, 1, 2, 3]]

    def total(x, k):
        y = dftopk_mask(x, k)
        return y.sum(), y

    gradient = jax.jit(jax.grad(total, has_aux=True))
    slopes, y = gradient(np.float32(x), 2)
    np.testing.assert_array_equal(y[:3], [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0]])
    np.testing.assert_array_equal(y[3], [0.5] * 4)
    assert np.isnan(y[4]).all()
    assert np.isfinite(slopes[:4]).all()
    for k, all_or_none in ((0, 0), (4, 1)):
        np.testing.assert_array_equal(gradient(np.float32(x), k)[1][2:4], np.full((2, 4), all_or_none))
