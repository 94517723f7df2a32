"""Ridge regression against scikit-learn and against least squares on the augmented system."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from sklearn.linear_model import Ridge

from ops.baselines import ridge_code
from tests.ops import oracles

TALL, WIDE = (12, 5), (5, 12)
SHAPES = pytest.mark.parametrize("shape", [TALL, WIDE], ids=["tall", "wide"])


def augmented(x, dictionary, lam):
    """Least squares of `(x, 0)` in `(D, sqrt(lam) I)`."""
    atoms = dictionary.shape[1]
    matrix = np.vstack([dictionary, np.sqrt(lam) * np.eye(atoms)])
    return np.linalg.lstsq(matrix, np.r_[x, np.zeros(atoms)])[0]


@SHAPES
def test_agrees_with_scikit_learn_and_lstsq(x64, shape):
    lam = 1e-3
    dictionary, x = oracles.samples(shape), oracles.samples((2, 3, shape[0]), 1)
    code = np.asarray(ridge_code(x, dictionary, lam))
    rows = x.reshape(-1, shape[0])
    fitted = Ridge(alpha=lam, fit_intercept=False, solver="svd").fit(dictionary, rows.T).coef_
    np.testing.assert_allclose(code.reshape(6, -1), fitted, atol=1e-12)
    np.testing.assert_allclose(code[1, 2], augmented(x[1, 2], dictionary, lam), atol=1e-11)


@SHAPES
def test_float32_and_narrow_floats(shape):
    dictionary, x = oracles.samples(shape), oracles.samples((4, shape[0]), 1)
    expected = np.stack([augmented(row, dictionary, 0.5) for row in x])
    dictionary = jnp.float32(dictionary)
    np.testing.assert_allclose(ridge_code(jnp.float32(x), dictionary, 0.5), expected, atol=2e-6)
    narrow = ridge_code(jnp.bfloat16(x), dictionary, 0.5)
    assert narrow.dtype == jnp.bfloat16
    np.testing.assert_allclose(narrow.astype(jnp.float32), expected, atol=2e-2)


@SHAPES
def test_derivatives(x64, shape):
    arguments = (oracles.samples((2, shape[0])), oracles.samples(shape, 1), np.float64(0.7))
    check_grads(jax.jit(ridge_code), arguments, 1, modes=["fwd", "rev"], atol=1e-6, rtol=1e-6, eps=1e-5)


def test_a_singular_gram_matrix_does_not_matter(x64):
    dictionary = np.repeat(oracles.samples((6, 2)), 2, axis=1)  # every atom twice: they share
    code = np.asarray(ridge_code(oracles.samples(6, 1), dictionary, 0.1))
    np.testing.assert_allclose(code[::2], code[1::2], atol=1e-12)
