"""Root of a decreasing function of one scalar per row, evaluated in as few passes over the data as possible."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ops.twofloat import TwoFloat, difference, inherit_sharding, middle, select, shift

# Bisection alone needs 32 + 24 steps in float32 and 64 + 53 in float64, and is taken at least every fourth step.
MAX_EVALUATIONS = {4: 256, 8: 512}


class Evaluation(NamedTuple):
    """What one pass over the data says of the decreasing function ``excess(gamma)`` at one point, per row.

    Attributes:
      excess: the value of the function, positive to the left of the root.
      step: the move to the root by the function's own local model (Newton's, say); any value where not trusted.
      trusted: whether that local model can be believed as far as ``step``.
      converged: whether ``gamma`` is a root to working precision.
      resolution: a change in ``gamma`` below which nothing visible changes.
    """

    excess: Array
    step: Array
    trusted: Array
    converged: Array
    resolution: Array


class Root(NamedTuple):
    """Where ``excess`` is 0, and the least point found at which it is not positive."""

    point: TwoFloat
    right: TwoFloat


class _State(NamedTuple):
    point: TwoFloat  # evaluated next
    previous: TwoFloat  # evaluated last
    previous_excess: Array
    left: TwoFloat
    left_excess: Array  # +inf until a point to the left of the root has been evaluated
    right: TwoFloat
    right_excess: Array  # -inf likewise
    slow: Array  # successive evaluations that have not brought the excess down
    done: Array
    evaluations: Array


def find_root(
    evaluate: Callable[[TwoFloat], Evaluation],
    start: Array,
    density: Array,
    lower: float | Array,
    upper: float | Array,
    *,
    extended: bool = True,
) -> Root:
    """Finds ``gamma`` in ``[lower, upper]`` with ``excess(gamma) = 0`` for every row at once.

    A bracket is kept and never left. Each next point comes from, in this order: the local model where it can be
    trusted; false position on the bracket (with Illinois weights) once both of its ends are known; a step by the
    guessed ``density``, growing while it does not reach the other side; and, whenever three evaluations in a row
    have not cut the excess to a third, bisection over the order of the floats, which bounds the count of passes
    whatever the data.

    Args:
      evaluate: one pass over the data.
      start: first point, shape of one scalar per row; non-finite values are replaced by the middle of the bracket.
      density: a guess of ``-d excess / d gamma`` near the root; positive.
      lower: a point at or to the left of every root; one for all, or one per row.
      upper: a point to the right of every root; likewise.
      extended: whether points between two neighbouring floats are looked at as well.

    Returns:
      The root of each row, a NaN where ``evaluate`` gave NaN, and the right end of its bracket.
    """
    dtype = start.dtype

    def full(value: float | Array, kind: jnp.dtype = dtype) -> Array:
        return inherit_sharding(jnp.full(start.shape, value, kind), start)

    zeros = full(0.0)
    left, right = TwoFloat(full(lower), zeros), TwoFloat(full(upper), zeros)
    inside = (start > lower) & (start < upper)
    initial = _State(
        point=select(inside, TwoFloat(start, zeros), middle(left, right)),
        previous=left,
        previous_excess=full(jnp.inf),
        left=left,
        left_excess=full(jnp.inf),
        right=right,
        right_excess=full(-jnp.inf),
        slow=full(0, jnp.int32),
        done=full(False, jnp.bool_),
        evaluations=jnp.zeros((), jnp.int32),
    )
    limit = MAX_EVALUATIONS[dtype.itemsize]

    def unfinished(state: _State) -> Array:
        return jnp.any(~state.done) & (state.evaluations < limit)

    def advance(state: _State) -> _State:
        point = state.point
        found = evaluate(point)
        excess = found.excess
        is_left = excess > 0

        # Illinois: an end kept twice running counts half, or false position would creep up on one side only.
        was_left = state.previous_excess > 0
        moved_on = jnp.isfinite(state.previous_excess)
        left = select(is_left, point, state.left)
        right = select(is_left, state.right, point)
        keep_right = jnp.where(is_left & was_left & moved_on, 0.5, 1.0) * state.right_excess
        keep_left = jnp.where(~is_left & ~was_left & moved_on, 0.5, 1.0) * state.left_excess
        left_excess = jnp.where(is_left, excess, keep_left)
        right_excess = jnp.where(is_left, keep_right, excess)

        gap = difference(right, left)
        bracketed = jnp.isfinite(left_excess) & jnp.isfinite(right_excess)
        exhausted = bracketed & (gap <= found.resolution)
        done = state.done | found.converged | jnp.isnan(excess) | exhausted

        creeping = jnp.abs(excess) > 0.3 * jnp.abs(state.previous_excess)
        slow = jnp.where(creeping, state.slow + 1, 0)

        guessed = 1.2 * excess / density
        reach = 4.0 * jnp.abs(difference(point, state.previous))
        stride = jnp.where(creeping & moved_on, jnp.maximum(jnp.abs(guessed), reach) * jnp.sign(excess), guessed)
        fraction = left_excess / (left_excess - right_excess)
        interpolated = shift(left, fraction * gap)
        away = select(bracketed, interpolated, shift(point, stride))
        trusted = found.trusted & (bracketed | (slow < 2))
        proposal = select(trusted, shift(point, found.step), away)

        inside = (difference(proposal, left) > 0) & (difference(right, proposal) > 0)
        bisect = ~inside | (bracketed & (slow >= 3))
        proposal = select(bisect, middle(left, right), proposal)
        if not extended:
            proposal = TwoFloat(proposal.hi, jnp.zeros_like(proposal.lo))
        return _State(
            point=select(done, point, proposal),
            previous=point,
            previous_excess=excess,
            left=left,
            left_excess=left_excess,
            right=right,
            right_excess=right_excess,
            slow=jnp.where(bisect, 0, slow),
            done=done,
            evaluations=state.evaluations + 1,
        )

    final = lax.while_loop(unfinished, advance, initial)
    invalid = jnp.isnan(final.previous_excess)

    def marked(value: TwoFloat) -> TwoFloat:
        return TwoFloat(jnp.where(invalid, jnp.nan, value.hi), jnp.where(invalid, 0.0, value.lo))

    return Root(marked(final.point), marked(final.right))
