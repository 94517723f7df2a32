"""Ridge regression: the code of a vector in a dictionary under a squared L2 penalty, in closed form."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ...interface.arguments import POSITIVE, check_scalar, floating
from ...interface.rowwise import FEATURES, rowwise
from .least_squares import check_dictionary, matmul


def ridge_code(x: ArrayLike, dictionary: ArrayLike, lam: ArrayLike) -> Array:
    """Returns `argmin_y ||x - D y||^2 + lam ||y||^2 = (D^T D + lam I)^-1 D^T x = D^T (D D^T + lam I)^-1 x`.

    Solved by a Cholesky factorisation of the smaller of the two matrices: takes O(m^2 M) time for `m <= M` the two
    sizes of the dictionary. Differentiable in all arguments, to any order.

    Source: Hoerl and Kennard (1970); the second form is the push-through identity. Both terms carry a factor of 1 here:
    the same `lam` is the penalty of `1/2 ||x - D y||^2 + lam / 2 ||y||^2`.

    Args:
      x: real array `(..., features)`.
      dictionary: real array `(features, atoms)`.
      lam: > 0 and finite, a scalar, in the units of the squared dictionary. Below its largest squared singular value
        times the precision of the dtype, the matrix may not be positive definite in floats; the result is then NaN.

    Returns:
      Array `(..., atoms)` of the dtype of `x` (integers are promoted to float). Computed in float32 at least.

    Raises:
      ValueError: an argument's shape does not fit, or `lam` is known and out of range.

    >>> ridge_code([3.0, 1.0], [[1.0, 0.0], [0.0, 1.0]], 1.0).round(1)
    Array([1.5, 0.5], dtype=float32)
    """
    x = floating(x)
    constants = {"dictionary": check_dictionary(dictionary, x), "lam": check_scalar("lam", lam, POSITIVE)}
    return rowwise(_code, x, axis=-1, constants=constants, returns=FEATURES)


def _code(x: Array, dictionary: Array, lam: Array) -> Array:
    wide = dictionary.astype(x.dtype)
    features, atoms = wide.shape
    if atoms <= features:
        code = _solve(matmul(wide.T, wide), lam, matmul(wide.T, x.T))
    else:
        code = matmul(wide.T, _solve(matmul(wide, wide.T), lam, x.T))
    return code.T


def _solve(gram: Array, lam: ArrayLike, right: Array) -> Array:
    """Returns `(gram + lam I)^-1 right`."""
    shifted = gram + jnp.asarray(lam).astype(gram.dtype) * jnp.eye(len(gram), dtype=gram.dtype)
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(shifted, lower=True), right)
