"""The mask with its threshold halfway between the k-th largest entry and the next."""

import jax
import numpy as np

from ops import hard_topk_mask
from ops.baselines import dftopk_mask
from tests.ops import oracles

X = oracles.samples((6, 40))


def expected(x, k, temperature):
    s = -np.sort(-x, axis=-1)
    tau = (s[:, k - 1 : k] + s[:, k : k + 1]) / 2
    return 1 / (1 + np.exp((tau - x) / temperature))


def test_agrees_with_the_formula(x64):
    for k, temperature in [(7, 0.1), (39, 2.0)]:
        np.testing.assert_allclose(dftopk_mask(X, k, temperature=temperature), expected(X, k, temperature), atol=1e-13)
    np.testing.assert_array_equal(dftopk_mask(X, 7, temperature=1e-9) > 0.5, hard_topk_mask(X, 7) > 0)


def test_derivatives_to_second_order(x64):
    def mask(x, temperature):
        return dftopk_mask(x, 3, temperature=temperature)

    oracles.check_derivatives(mask, (X[:2, :7], np.array([0.7, 1.1])), 1e-5)


def test_rows_without_a_threshold_and_extreme_entries_have_finite_masks_and_gradients():
    inf = np.inf
    x = np.float32(
        [[0.3, -inf, -inf, -inf], [0.3, 0.1, -inf, -inf], [3e38, -3e38, inf, 0], [1, 1, 1, 1], [np.nan, 1, 2, 3]]
    )
    y, gradient = dftopk_mask(x, 2), jax.grad(lambda x: dftopk_mask(x, 2).sum())(x[:4])
    np.testing.assert_array_equal(y[:3], [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0]])
    np.testing.assert_array_equal(y[3], [0.5] * 4)
    assert np.isnan(y[4]).all()
    assert np.isfinite(gradient).all()
    for k, all_or_none in ((0, 0), (4, 1)):
        np.testing.assert_array_equal(dftopk_mask(x[2:4], k), np.full((2, 4), all_or_none))
