"""Derivatives of sparse least squares solutions, from what holds at the solution and not from how it was found.

At a minimiser of `1/2 ||x - D y||^2 + <slope, y>` over the vectors of a given support, optionally with `sum(y) = 1`,

    P (D^T (x - D y) - slope) = 0,

with `P` the orthogonal projection onto the directions in which `y` may move: entries outside the support are 0, and
entries add up to 0 if their sum is given. As long as the support stays the same, its differential is

    P D^T D P dy = P (D^T (dx - dD y) + dD^T (x - D y) - dslope),    dy = P dy.

The lasso has the slope `lam sign(y)`, the projection onto the convex hull of the atoms the slope 0 and `sum(y) = 1`.
"""

import functools

import jax
import jax.numpy as jnp
from jax import Array, lax

from ...scalar.choice import choose
from ...scalar.conjugate_gradients import conjugate_gradients
from .least_squares import matmul


@functools.partial(jax.custom_jvp, nondiff_argnums=(4,))
def differentiable(solution: Array, x: Array, dictionary: Array, slope: Array, sum_is_fixed: bool) -> Array:
    """The solution, with the derivatives above in `x`, `dictionary` and `slope`, in both modes and to any order.

    The support is that of `solution`. If its atoms are linearly dependent, this is the derivative of least norm.
    The linear system is solved by conjugate gradients: O(features + atoms) memory per row, and no matrix of atoms by
    atoms.

    Args:
      solution: `(rows, atoms)`, a minimiser; receives no gradient.
      x: `(rows, features)`.
      dictionary: `(features, atoms)`.
      slope: `(rows, atoms)`.
      sum_is_fixed: whether the solution is subject to `sum(y) = 1`.
    """
    return solution


@differentiable.defjvp
def _differentiable_jvp(sum_is_fixed, primals, tangents):
    solution, x, dictionary, slope = primals
    _, x_dot, dictionary_dot, slope_dot = tangents
    y = differentiable(solution, x, dictionary, slope, sum_is_fixed)  # again, for derivatives of higher order
    support = lax.stop_gradient(solution) != 0

    def project(direction: Array) -> Array:
        direction = choose(support, direction, 0.0)
        if not sum_is_fixed:
            return direction
        size = jnp.maximum(jnp.sum(support, axis=-1, keepdims=True), 1).astype(direction.dtype)
        return choose(support, direction - jnp.sum(direction, axis=-1, keepdims=True) / size, 0.0)

    def restricted(direction: Array) -> Array:
        return project(matmul(matmul(direction, dictionary.T), dictionary))

    def curvature(direction: Array) -> Array:
        # The identity where P vanishes makes the system regular and leaves its solution in the range of P alone.
        inside = project(direction)
        return restricted(inside) + (direction - inside)

    def solve(_, right: Array) -> Array:
        inside = project(right)
        precision = float(jnp.finfo(right.dtype).eps)
        # A lower curvature, relative to the atoms that the row uses, means linearly dependent atoms: along such a
        # direction the system does not determine the solution.
        squares = jnp.sum(jnp.square(dictionary), axis=0)[:, None]
        min_curvature = precision * matmul(support.astype(right.dtype), squares)
        # Exact arithmetic needs as many iterations as there are different eigenvalues.
        solved = conjugate_gradients(restricted, inside, 4 * min(dictionary.shape), precision, min_curvature)
        return solved + (right - inside)

    residual = x - matmul(y, dictionary.T)
    moved = x_dot - matmul(y, dictionary_dot.T)
    right = project(matmul(moved, dictionary) + matmul(residual, dictionary_dot) - slope_dot)
    # Outside the range of P there are only rounding errors of the right side, which large atoms make large.
    return y, project(lax.custom_linear_solve(curvature, right, solve, symmetric=True))
