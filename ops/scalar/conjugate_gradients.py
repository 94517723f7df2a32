"""Linear systems by conjugate gradients, a batch of them at once, each until it is done by itself.

`jax.scipy.sparse.linalg.cg` takes a batch as one system: what is left is measured over all of them together.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ..interface.rowwise import varying_as
from .choice import choose


def conjugate_gradients(
    matrix: Callable[[Array], Array],
    right: Array,
    iterations: int,
    tolerance: float,
    flat: Array | float | None = None,
) -> Array:
    """Solves ``matrix(y) = right`` for a positive semidefinite symmetric matrix, each of a batch by itself.

    Args:
      matrix: of arrays shaped like ``right``.
      right: one system in each entry of the first axis, without a part in the null space.
      iterations: the most there are.
      tolerance: at which norm of the remainder, in units of that of ``right``, to stop.
      flat: curvature, of a direction of length 1, up to which nothing is known along it: a system ends there. By
        default 0.
    """

    class State(NamedTuple):
        y: Array
        rest: Array
        direction: Array
        square: Array
        steps: Array

    def dot(a: Array, b: Array) -> Array:
        return jnp.sum(a * b, axis=tuple(range(1, right.ndim)), keepdims=True)

    least = tolerance**2 * dot(right, right)

    def going(state: State) -> Array:
        return jnp.any(state.square > least) & (state.steps < iterations)

    def step(state: State) -> State:
        image = matrix(state.direction)
        curvature = dot(state.direction, image)
        negligible = 0.0 if flat is None else flat * dot(state.direction, state.direction)
        on = (state.square > least) & (curvature > negligible)
        length = choose(on, state.square / choose(on, curvature, 1.0), 0.0)
        y, rest = state.y + length * state.direction, state.rest - length * image
        square = choose(on, dot(rest, rest), 0.0)
        ratio = choose(on, square / choose(on, state.square, 1.0), 0.0)
        return State(y, rest, rest + ratio * state.direction, square, state.steps + 1)

    start = State(jnp.zeros_like(right), right, right, dot(right, right), jnp.zeros((), jnp.int32))
    initial = varying_as(start._replace(steps=right), right)._replace(steps=start.steps)
    return lax.while_loop(going, step, initial).y
