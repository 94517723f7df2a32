"""Ridge regression against its normal equations."""

import jax
import numpy as np
import pytest
from jax.test_util import check_grads

from ops.baselines import ridge_code
from tests.ops import oracles


@pytest.mark.parametrize("shape", [(12, 5), (5, 12)], ids=["tall", "wide"])
def test_solves_the_normal_equations_with_its_derivatives_in_float32_too(x64, shape):
    lam, dictionary, x = 0.7, oracles.samples(shape), oracles.samples((2, shape[0]), 1)
    expected = np.linalg.solve(dictionary.T @ dictionary + lam * np.eye(shape[1]), dictionary.T @ x.T).T
    code = jax.jit(ridge_code)
    np.testing.assert_allclose(code(x, dictionary, lam), expected, atol=1e-12)
    np.testing.assert_allclose(code(np.float32(x), np.float32(dictionary), lam), expected, atol=1e-5)
    check_grads(code, (x, dictionary, np.float64(lam)), 1, modes=["rev"], atol=1e-6, rtol=1e-6, eps=1e-5)
