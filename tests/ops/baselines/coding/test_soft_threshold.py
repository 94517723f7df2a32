"""Shrinkage against its formulas."""

import jax
import numpy as np

from ops.baselines import coding

sigshrink = jax.jit(coding.sigshrink)


def test_shrinks_by_the_largest_magnitude_left_out():
    x = np.float32([[3, -2, 0.5, -1.5], [2, 1, -1, 1], [1, -2, 0, 3], [1, -2, 0, 3]])
    found = jax.jit(jax.vmap(coding.soft_threshold_topk))(x, np.float32([2, 2, 4, 0]))
    # Ties at the threshold leave fewer.
    np.testing.assert_allclose(found, [[1.5, -0.5, 0, 0], [1, 0, 0, 0], [1, -2, 0, 3], [0, 0, 0, 0]])


def test_sigshrink_is_the_formula_and_sharp_it_is_hard_thresholding():
    x = np.linspace(-3, 3, 13).astype(np.float32)
    expected = x / (1 + np.exp(-5 * (np.abs(x) - 1)))
    np.testing.assert_allclose(sigshrink(x, 1.0, 5.0), expected, rtol=1e-5)
    x[:5] = [-2.0, -0.9, 0.0, 0.9, 1.1]
    np.testing.assert_array_equal(sigshrink(x, 1.0, 1e6)[:5], np.float32([-2.0, 0.0, 0.0, 0.0, 1.1]))


def test_sigshrink_is_finite_with_its_gradients_where_the_exponential_is_not():
    x = np.float32([-1e30, -1e3, 0.0, 1e-30, 1e3, 1e30])
    gradient = jax.jit(jax.grad(lambda x, t, s: sigshrink(x, t, s).sum(), (0, 1, 2)))(x, 10.0, 1e3)
    assert all(np.isfinite(leaf).all() for leaf in gradient)
