"""Proximal gradient descent on `1/2 ||x - D y||^2 + h(y)`, plain (ISTA) or accelerated (FISTA), one problem per row."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ...interface.rowwise import varying_as
from ...scalar.choice import choose
from .least_squares import matmul


class State(NamedTuple):
    """The state of each row; every array has a leading axis of rows, and scalars per row the shape `(rows, 1)`.

    Attributes:
      y: the iterate, `(rows, atoms)`.
      correlation: `D^T (x - D y)`, the negative gradient of the square there.
      previous_y: the iterate before it.
      previous_correlation: `D^T (x - D y)` at that one.
      age: steps since the start or the last restart of the momentum.
      iterations: steps taken.
      gap: the optimality gap of the iterate, as the problem defines it.
    """

    y: Array
    correlation: Array
    previous_y: Array
    previous_correlation: Array
    age: Array
    iterations: Array
    gap: Array


def minimise(
    x: Array,
    dictionary: Array,
    start: Array,
    step: Array,
    proximal: Callable[[Array, Array], Array],
    gap: Callable[[Array, Array, Array], Array],
    *,
    accelerated: bool,
    tolerance: Array,
    max_iterations: Array,
) -> State:
    """Iterates `y <- prox_{step h}(v + step D^T (x - D v))` until the gap of every row is within the tolerance.

    Plain, `v = y` (Daubechies, Defrise and De Mol, 2004). Accelerated, `v = y + (l - 1) / (l + 2) (y - previous y)` at
    the l-th step (Beck and Teboulle, 2009, with the weights of the note), and `l` starts again at 1 whenever the
    momentum points uphill, `<v - y_new, y_new - y> > 0` (O'Donoghue and Candès, 2015). The gap is measured at `y`; the
    gradient at `v` follows from those at the two last `y` by linearity, so that a step costs two products with the
    dictionary in both cases. A converged row is not changed any more, so that its result does not depend on other rows.

    Args:
      x: `(rows, features)`.
      dictionary: `(features, atoms)`.
      start: `(rows, atoms)`.
      step: a scalar, at most `1 / ||D||_2^2` (plain: less than twice that, to converge).
      proximal: the proximal operator, of a point `(rows, atoms)` and the number of the step, from 1, `(rows, 1)`.
      gap: returns the optimality gap `(rows, 1)` from `y`, `x - D y` and `D^T (x - D y)`. A row whose gap is NaN stops.
      accelerated: whether to use momentum.
      tolerance: the gap at which a row stops.
      max_iterations: the most iterations.
    """

    def evaluate(y: Array) -> tuple[Array, Array]:
        residual = x - matmul(y, dictionary.T)
        correlation = matmul(residual, dictionary)
        return correlation, gap(y, residual, correlation)

    def active(state: State) -> Array:
        return (state.gap > tolerance) & (state.iterations < max_iterations)

    def iterate(state: State) -> State:
        age = state.age.astype(x.dtype)
        momentum = age / (age + 3.0) if accelerated else jnp.zeros_like(age)  # (l - 1) / (l + 2) for l = age + 1
        v = state.y + momentum * (state.y - state.previous_y)
        descent = state.correlation + momentum * (state.correlation - state.previous_correlation)
        y = proximal(v + step * descent, state.iterations + 1)
        uphill = jnp.sum((v - y) * (y - state.y), axis=-1, keepdims=True) > 0
        correlation, new_gap = evaluate(y)
        new = State(
            y,
            correlation,
            state.y,
            state.correlation,
            choose(uphill, 0, state.age + 1),
            state.iterations + 1,
            new_gap,
        )
        going = active(state)
        return State(*(choose(going, after, before) for after, before in zip(new, state, strict=True)))

    correlation, first_gap = evaluate(start)
    count = jnp.zeros(first_gap.shape, jnp.int32)
    state = varying_as(State(start, correlation, start, correlation, count, count, first_gap), x)
    return lax.while_loop(lambda state: jnp.any(active(state)), iterate, state)
