"""Conjugate gradients for a batch of linear systems, each with its own stopping test.

`jax.scipy.sparse.linalg.cg` treats a batch as one system and measures one residual over all of it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ..interface.rowwise import varying_as
from .choice import choose


def conjugate_gradients(
    matrix: Callable[[Array], Array],
    rhs: Array,
    iterations: int,
    tolerance: float,
    min_curvature: Array | float | None = None,
) -> Array:
    """Returns the solution of ``matrix(y) = rhs`` for each of a batch of symmetric positive semidefinite matrices.

    Args:
      matrix: the linear map, from and to arrays shaped like ``rhs``.
      rhs: right-hand sides, one system for each index of the first axis, orthogonal to the null space.
      iterations: the most iterations.
      tolerance: a system stops once the norm of its residual is at most this times the norm of its ``rhs``.
      min_curvature: a system stops at a search direction whose curvature, per squared length, is at most this; such a
        direction lies in the null space up to rounding. Default 0.
    """

    class State(NamedTuple):
        y: Array
        residual: Array
        direction: Array
        squared_norm: Array
        steps: Array

    def dot(a: Array, b: Array) -> Array:
        return jnp.sum(a * b, axis=tuple(range(1, rhs.ndim)), keepdims=True)

    least = tolerance**2 * dot(rhs, rhs)

    def unfinished(state: State) -> Array:
        return jnp.any(state.squared_norm > least) & (state.steps < iterations)

    def step(state: State) -> State:
        product = matrix(state.direction)
        curvature = dot(state.direction, product)
        negligible = 0.0 if min_curvature is None else min_curvature * dot(state.direction, state.direction)
        active = (state.squared_norm > least) & (curvature > negligible)
        length = choose(active, state.squared_norm / choose(active, curvature, 1.0), 0.0)
        y, residual = state.y + length * state.direction, state.residual - length * product
        squared_norm = choose(active, dot(residual, residual), 0.0)
        ratio = choose(active, squared_norm / choose(active, state.squared_norm, 1.0), 0.0)
        return State(y, residual, residual + ratio * state.direction, squared_norm, state.steps + 1)

    start = State(jnp.zeros_like(rhs), rhs, rhs, dot(rhs, rhs), jnp.zeros((), jnp.int32))
    initial = varying_as(start._replace(steps=rhs), rhs)._replace(steps=start.steps)
    return lax.while_loop(unfinished, step, initial).y
