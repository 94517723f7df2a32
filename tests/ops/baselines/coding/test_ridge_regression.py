"""Ridge regression against scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from sklearn.linear_model import Ridge

from ops.baselines import ridge_code
from tests.ops import oracles

SHAPES = pytest.mark.parametrize("shape", [(12, 5), (5, 12)], ids=["tall", "wide"])


@SHAPES
def test_agrees_with_scikit_learn_also_in_float32_and_in_narrow_floats(x64, shape):
    lam = 0.1
    dictionary, x = oracles.samples(shape), oracles.samples((2, 3, shape[0]), 1)
    model = Ridge(alpha=lam, fit_intercept=False, solver="svd").fit(dictionary, x.reshape(6, -1).T)
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5), (jnp.bfloat16, 0.05)):
        code = np.asarray(ridge_code(x.astype(dtype), dictionary.astype(dtype), lam))
        assert code.dtype == dtype
        np.testing.assert_allclose(code.astype(np.float64).reshape(6, -1), model.coef_, atol=tolerance)


@SHAPES
def test_derivatives(x64, shape):
    arguments = (oracles.samples((2, shape[0])), oracles.samples(shape, 1), np.float64(0.7))
    check_grads(jax.jit(ridge_code), arguments, 1, modes=["rev"], atol=1e-6, rtol=1e-6, eps=1e-5)


def test_a_singular_gram_matrix_does_not_matter(x64):
    dictionary = np.repeat(oracles.samples((6, 2)), 2, axis=1)  # every atom twice: they share
    code = np.asarray(ridge_code(oracles.samples(6, 1), dictionary, 0.1))
    np.testing.assert_allclose(code[::2], code[1::2], atol=1e-12)
