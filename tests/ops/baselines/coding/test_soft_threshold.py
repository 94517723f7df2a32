"""Soft thresholding as the proximal operator that it is."""

import jax
import numpy as np
import pytest
import scipy.optimize

from ops.baselines.coding import soft_threshold as module

# One program each instead of one for each operation.
sigshrink, soft_threshold = jax.jit(module.sigshrink), jax.jit(module.soft_threshold)
soft_threshold_topk = jax.jit(module.soft_threshold_topk, static_argnums=1)


@pytest.mark.parametrize("x", [-2.0, -0.3, 0.0, 0.49, 0.51, 3.0])
def test_solves_the_proximal_problem(x):
    objective = lambda y: (y - x) ** 2 / 2 + 0.5 * abs(y)  # noqa: E731
    expected = scipy.optimize.minimize_scalar(objective, bounds=(-4, 4), method="bounded", options={"xatol": 1e-9}).x
    assert float(soft_threshold(np.float32(x), 0.5)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("k", [0, 1, 10, 99, 100])
def test_leaves_the_k_largest_magnitudes(k):
    x = np.random.default_rng(k).standard_normal(100).astype(np.float32)
    y = np.asarray(soft_threshold_topk(x, k))
    assert set(np.flatnonzero(y)) == set(np.argsort(-np.abs(x))[:k])


def test_shrinks_by_the_largest_magnitude_left_out():
    y = soft_threshold_topk(np.float32([3.0, -2.0, 0.5, -1.5]), 2)
    np.testing.assert_allclose(y, [1.5, -0.5, 0.0, 0.0])


def test_k_of_all_entries_changes_nothing():
    x = np.float32([1.0, -2.0, 0.0])
    np.testing.assert_array_equal(soft_threshold_topk(x, 3), x)


def test_ties_at_the_threshold_leave_fewer():
    y = soft_threshold_topk(np.float32([2.0, 1.0, -1.0, 1.0]), 2)
    np.testing.assert_allclose(y, [1.0, 0.0, 0.0, 0.0])


def test_sigshrink_is_the_formula_and_odd():
    x = np.linspace(-3, 3, 13).astype(np.float32)
    expected = x / (1 + np.exp(-5 * (np.abs(x) - 1)))
    np.testing.assert_allclose(sigshrink(x, 1.0, 5.0), expected, rtol=1e-5)
    np.testing.assert_array_equal(sigshrink(-x, 1.0, 5.0), -sigshrink(x, 1.0, 5.0))


def test_sharp_sigshrink_is_hard_thresholding():
    y = sigshrink(np.float32([-2.0, -0.9, 0.0, 0.9, 1.1]), 1.0, 1e6)
    np.testing.assert_array_equal(y, np.float32([-2.0, 0.0, 0.0, 0.0, 1.1]))


def test_sigshrink_is_finite_with_its_gradients_where_the_exponential_is_not():
    x = np.float32([-1e30, -1e3, 0.0, 1e-30, 1e3, 1e30])
    gradient = jax.jit(jax.grad(lambda x, t, s: sigshrink(x, t, s).sum(), (0, 1, 2)))(x, 10.0, 1e3)
    assert all(np.isfinite(leaf).all() for leaf in gradient)
