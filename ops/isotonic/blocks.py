"""Blocks of entries with one common value: the optimality residual, and the derivative (Proposition 7)."""

import functools
import math

import jax
import jax.numpy as jnp
from jax import Array

from ..scalar.arithmetic import TwoFloat, choose
from .problem import Problem


def block_sum(values: Array, linked: Array) -> Array:
    """Returns at every entry the sum of ``values`` over its block; all of shape ``(rows, n)``.

    Args:
      values: the summands.
      linked: bool, whether an entry belongs to the same block as its successor; false at the last of each row.
    """
    rows, n = values.shape
    first = jnp.concatenate([jnp.ones_like(linked[:, :1]), ~linked[:, :-1]], axis=1)
    # A segment sum adds one entry after another, and its rounding error grows with the number of entries. Summing
    # pieces of at most sqrt(n) entries first, then the pieces, keeps it small.
    cut = (jnp.arange(n) % math.isqrt(n) == 0).reshape(1, n)
    piece = jnp.cumsum((first | cut).ravel(), dtype=jnp.int32) - 1
    block = jnp.cumsum(first.ravel(), dtype=jnp.int32) - 1
    block_of_piece = jnp.full(rows * n, rows * n - 1, jnp.int32).at[piece].set(block)
    add = functools.partial(jax.ops.segment_sum, num_segments=rows * n, indices_are_sorted=True)
    return add(add(values.ravel(), piece), block_of_piece)[block].reshape(rows, n)


def residual(problem: Problem, v: Array, linked: Array, s: Array, w: Array, lam: Array) -> Array:
    """Returns the violation of the optimality conditions, in the units of ``v``, shape ``(rows, 1)``.

    It is the larger of two maxima: the distance of an entry from the value to which its block would pool, and the
    amount by which these values are out of order. It is zero only at the solution, provided that the multipliers of the
    links are not negative. The change between iterations is no substitute, since it is small for slow convergence, too.

    Args:
      problem: exponent and nonlinearity.
      v: the point, shape ``(rows, n)``.
      linked: which neighbours are held together, as in ``block_sum``.
      s: entries, same shape.
      w: weights, same shape.
      lam: strength of the regularisation, shape ``(rows, 1)``.
    """
    mean = block_sum(v, linked) / block_sum(jnp.ones_like(v), linked)
    t = s - mean
    slope = block_sum(w * problem.slope(mean) - problem.dual(t, lam), linked)
    curvature = block_sum(problem.dual_slope(t, lam) + w * problem.curvature(mean), linked)
    pooled = mean - choose(curvature > 0, slope / choose(curvature > 0, curvature, 1.0), 0.0)
    disorder = jnp.maximum(pooled[:, 1:] - pooled[:, :-1], 0.0)
    return jnp.maximum(
        jnp.max(jnp.abs(v - pooled), axis=1, keepdims=True), jnp.max(disorder, axis=1, keepdims=True, initial=0.0)
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def attach_derivative(
    problem: Problem, s: Array, w: Array, lam: Array, v: TwoFloat, linked: Array, fixed: Array
) -> TwoFloat:
    """Returns ``v``, with the derivative of the solution of the isotonic problem in ``s``, ``w`` and ``lam``.

    Args:
      problem: exponent and nonlinearity.
      s: entries, shape ``(rows, n)``.
      w: weights, same shape.
      lam: strength of the regularisation, shape ``(rows, 1)``.
      v: the solution; a constant to differentiation.
      linked: which neighbours are held together, as in ``block_sum``.
      fixed: bool, entries held at 0, the boundary of the non-negative cone.
    """
    return v


@attach_derivative.defjvp
def _attach_derivative_jvp(problem, primals, tangents):
    s, w, lam, v, linked, fixed = primals
    s_dot, w_dot, lam_dot = tangents[:3]
    v = attach_derivative(problem, s, w, lam, v, linked, fixed)
    value, t = v.hi + v.lo, (s - v.hi) - v.lo
    # All terms are multiplied by a small lam, for which dual_slope alone overflows. dual is a power of t / lam.
    unit = jnp.minimum(lam, 1.0)
    stiffness = unit * problem.dual_slope(t, lam)
    weakened = -stiffness * (t / lam) * lam_dot
    moved = block_sum(stiffness * s_dot + weakened - unit * problem.slope(value) * w_dot, linked)
    total = block_sum(stiffness + unit * (w * problem.curvature(value)), linked)
    # A total of 0 occurs for entries without weight, whose derivative is that of s.
    some = total > 0
    v_dot = choose(fixed, 0.0, choose(some, moved / choose(some, total, 1.0), s_dot))
    return v, TwoFloat(jnp.zeros_like(v.hi), v_dot)
