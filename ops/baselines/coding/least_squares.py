"""Least squares `x ~ D y`: what the methods that add a penalty or a constraint to it share."""

import functools

import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike

from ...interface.arguments import floating, working_dtype
from ...interface.rowwise import on_mesh
from ...scalar.choice import choose

# Matrix products in the full precision of their dtype, on accelerators too: gaps are differences.
matmul = functools.partial(jnp.matmul, precision="highest")

# Squarings of the Gram matrix: of n equal singular values, the bound is off by a factor n ** (1 / 128).
_SQUARINGS = 6


def check_dictionary(dictionary: ArrayLike, x: Array) -> Array:
    """The dictionary `(features, atoms)` as a floating array, for vectors `x` of shape `(..., features)`."""
    dictionary = floating(dictionary, "dictionary")
    if dictionary.ndim != 2 or 0 in dictionary.shape:
        raise ValueError(f"dictionary must have the shape (features, atoms), none 0, got shape {dictionary.shape}")
    if x.ndim == 0 or x.shape[-1] != dictionary.shape[0]:
        raise ValueError(f"x must have the shape (..., {dictionary.shape[0]}) of the dictionary, got shape {x.shape}")
    return dictionary


def curvature_bound(dictionary: ArrayLike) -> Array:
    """An upper bound of `||D||_2^2`, the Lipschitz constant of the gradient of `1/2 ||x - D y||^2` in `y`.

    Steps of one over this are safe. Power iteration by repeated squaring: with `G` the smaller of `D^T D` and `D D^T`,
    whose largest eigenvalue is sought, and `m = 64`,

        ||D||_2^2 <= ||G^m||_F^(1/m) <= rank(D)^(1/(2m)) ||D||_2^2.

    Unlike power iteration on a vector, which approaches from below and may start orthogonal to what it seeks, this is
    never too small, and at most 6 % too large for a rank up to 1000. Takes 7 products of matrices of the smaller size
    of the dictionary: compute it once where the dictionary stays.

    Args:
      dictionary: real array `(features, atoms)`.

    Returns:
      A scalar of at least float32; 0 for a dictionary of zeros. Not differentiable: its derivative is 0.

    Raises:
      ValueError: the dictionary is not a matrix.

    >>> float(curvature_bound([[3.0, 0.0], [0.0, 1.0]]).round())
    9.0
    """
    dictionary = floating(dictionary, "dictionary")
    check_dictionary(dictionary, dictionary.T)
    return on_mesh(_bound, PartitionSpec())(dictionary)


def _bound(dictionary: Array) -> Array:
    wide = lax.stop_gradient(dictionary.astype(working_dtype(dictionary.dtype)))
    largest = jnp.max(jnp.abs(wide))
    scaled = wide / choose(largest > 0, largest, 1.0)
    gram = matmul(scaled.T, scaled) if wide.shape[1] <= wide.shape[0] else matmul(scaled, scaled.T)

    def norm(matrix: Array) -> Array:
        return jnp.maximum(jnp.sqrt(jnp.sum(jnp.square(matrix))), jnp.finfo(wide.dtype).tiny)

    logarithm = jnp.zeros((), wide.dtype)
    for squaring in range(_SQUARINGS):
        size = norm(gram)
        logarithm = logarithm + jnp.log(size) / 2**squaring
        gram = matmul(gram / size, gram / size)
    logarithm = logarithm + jnp.log(norm(gram)) / 2**_SQUARINGS
    slack = 1.0 + jnp.sqrt(jnp.finfo(wide.dtype).eps)  # of the rounding of all this
    return choose(largest > 0, slack * jnp.exp(logarithm) * jnp.square(largest), 0.0)
