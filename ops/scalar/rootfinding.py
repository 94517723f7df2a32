"""Root of a decreasing function of one scalar per row, evaluated in as few passes over the data as possible.

Every way to guess the next point has functions on which it creeps. So rows that are not done after ``GUESSES``
evaluations are bisected from then on, which bounds the count of evaluations whatever the function:

- The order of the floats is bisected, not their values: ``bits`` steps (32, or 64) lead from any bracket to two
  neighbouring floats, or to one no wider than an eighth of ``scale``, the distance over which the function changes.
- Between two neighbours, points are measured from the upper one, and the order of these distances is bisected: ``bits``
  more steps lead to an eighth of ``scale``, or to two numbers that no pair of floats can tell apart.
- From an eighth of ``scale``, ``nmant - 1`` halvings (22, or 51) lead to the resolution, a quarter of the machine
  epsilon of it; three more make up for what ``scale`` varies there.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from .choice import choose
from .cpu import rows_without_derivative
from .rows import Rows
from .twofloat import TwoFloat, middle, two_sum

# Typical rows are done after 3 to 8 evaluations.
GUESSES = 48


class Evaluation(NamedTuple):
    """What one pass over the data says of the decreasing function ``excess(gamma)`` at one point, per row.

    Attributes:
      excess: the value of the function, positive to the left of the root.
      level: an increasing function of ``excess`` with the same sign, more nearly linear in ``gamma`` far from the root;
        ``excess`` itself will do.
      step: the move to the root by the function's own local model (Newton's, say); any value where not trusted.
      trusted: whether that local model can be believed as far as ``step``.
      converged: whether ``gamma`` is a root to working precision. Where a trusted ``step`` that is not 0 still leads
        somewhere inside the bracket, that point is looked at, too.
      scale: how far ``gamma`` has to move to change the function a good deal; a move by a quarter of the machine
        epsilon of that changes nothing visible. Nearly the same at all points within an eighth of it.
    """

    excess: Array
    level: Array
    step: Array
    trusted: Array
    converged: Array
    scale: Array


class End(NamedTuple):
    """An end of the first bracket: a point not beyond any root, and ``level`` there; an infinite one if not known."""

    point: float | Array
    level: float | Array


class Root(NamedTuple):
    """What was found, one of each per row.

    Attributes:
      point: where ``excess`` is 0.
      right: the least float found at which ``excess`` is not positive, or the right end if none was.
      evaluations: int32, how many passes over the data the row needed.
    """

    point: TwoFloat
    right: Array
    evaluations: Array


class State(NamedTuple):
    """How far the search has come, one of each per row."""

    anchor: Array  # points are measured from here: from 0, or between two neighbouring floats from the upper one
    anchored: Array  # which of the two: 0, or 1 (the compilers of kernels carry no booleans through a loop)
    point: Array  # evaluated next
    rest: Array  # what it lies beyond `point`, between this float and the next
    last_level: Array
    best_level: Array  # the least |level| so far
    left: Array
    left_level: Array
    right: Array
    right_level: Array
    slow: Array  # successive evaluations that have hardly lowered the best level
    done: Array  # 0, or the most evaluations there may be
    evaluations: Array


def most_evaluations(dtype: jnp.dtype) -> int:
    """The bound on the count of evaluations (see above)."""
    limits = jnp.finfo(dtype)
    return GUESSES + 2 * limits.bits + limits.nmant + 2


def find_root(
    evaluate: Callable[[TwoFloat], Evaluation],
    start: Array,
    left: End,
    right: End,
    *,
    extended: bool | Array = True,
    rows: Rows | None = None,
) -> Root:
    """Finds ``gamma`` between ``left`` and ``right`` with ``excess(gamma) = 0`` for every row at once.

    A bracket is kept and never left. Each next point comes from, in this order: the local model where it can be
    trusted; false position on the bracket (with Illinois weights) where the levels of both ends are known; and
    bisection where these lead outside, where both ends are tried and differ by orders of magnitude, where two
    evaluations in a row have hardly lowered the best level, and where there have been too many guesses.

    Args:
      evaluate: one pass over the data.
      start: first point, shape of one scalar per row; the middle of the bracket is taken for what is not inside.
      left: at or to the left of every root, and finite; one for all, or one per row.
      right: at or to the right of every root; likewise.
      extended: whether points between two neighbouring floats are looked at as well; one for all, or one per row.
      rows: how the scalars of rows are computed; default: as suits the device.

    Returns:
      The root of each row, a NaN where ``evaluate`` gave NaN, the right end of its bracket, and the cost.
    """
    rows = rows or rows_without_derivative(Rows())
    dtype = start.dtype
    quarter_eps = 0.25 * float(jnp.finfo(dtype).eps)
    least = 2.0 * float(jnp.finfo(dtype).tiny)  # differences below it are 0 on some devices
    limit = most_evaluations(dtype)

    # Made of `start`, zeros vary over devices as it does, and are laid out as it is by compilers of kernels: those want
    # a loop to start from what is laid out as what it goes on with.
    nowhere = lax.abs(start) < 0
    zero, count = nowhere.astype(dtype), nowhere.astype(jnp.int32)

    def full(value: float | Array) -> Array:
        return zero + value if isinstance(value, float) else value

    infinite, first, last = full(jnp.inf), full(left.point), full(right.point)
    # Finite where an end is not; and not as half of a sum, which XLA makes of two halves, and which may overflow.
    finite = jnp.minimum(last, float(jnp.finfo(dtype).max))
    half_way = 0.5 * first + (finite - 0.5 * finite)
    initial = State(
        anchor=zero,
        anchored=count,
        point=lax.select((start > first) & (start < last), start, half_way),
        rest=zero,
        last_level=infinite,
        best_level=infinite,
        left=first,
        left_level=full(left.level),
        right=last,
        right_level=full(right.level),
        slow=count,
        done=count,
        evaluations=count,
    )

    def unfinished(state: State) -> Array:
        return rows.loop_condition(jnp.min(lax.max(state.done, state.evaluations)) < limit)

    def looked_at(state: State) -> TwoFloat:
        anchored = state.anchored > 0
        return TwoFloat(lax.select(anchored, state.anchor, state.point), lax.select(anchored, state.point, state.rest))

    def advance(state: State) -> State:
        found = evaluate(looked_at(state))
        point, rest = state.point, state.rest
        anchored, was_done = state.anchored > 0, state.done > 0
        level, step = found.level, found.step
        is_left = found.excess > 0
        # The ends are floats: rounded outwards, so that the root stays between them.
        below = lax.select(rest < 0, jnp.nextafter(point, -jnp.inf), point)
        above = lax.select(rest > 0, jnp.nextafter(point, jnp.inf), point)
        left = lax.select(is_left, lax.max(below, state.left), state.left)
        right = lax.select(is_left, state.right, lax.min(above, state.right))
        gap = right - left

        def where_extended(condition: Array) -> Array:
            """The condition, where points between neighbouring floats are looked at."""
            return condition if extended is True else condition & extended

        def inside(candidate: Array, beyond: Array = zero) -> Array:
            # Compared, not subtracted: a difference may be too small for a normal number, and 0 on some devices.
            after = (candidate > left) | ((candidate == left) & (beyond > 0))
            return after & ((candidate < right) | ((candidate == right) & (beyond < 0)))

        # Illinois: an end kept twice running counts half, or false position would creep up on one side only.
        repeated = (is_left == (state.last_level > 0)) & (state.last_level < jnp.inf)
        kept = lax.select(is_left, state.right_level, state.left_level)
        kept = lax.select(repeated, 0.5 * kept, kept)
        left_level, right_level = lax.select(is_left, level, kept), lax.select(is_left, kept, level)
        interpolated = left + left_level / (left_level - right_level) * gap

        size = lax.abs(level)
        slow = choose(size > 0.7 * state.best_level, state.slow + 1, 0)
        moved = two_sum(point, rest + step)
        proposal = lax.select(found.trusted, moved.hi, interpolated)
        beyond = lax.select(where_extended(found.trusted), moved.lo, zero)

        near_by = gap < 0.125 * found.scale
        low, high = lax.abs(left), lax.abs(right)
        # Ends not evaluated yet may be the least or the largest of floats, and say nothing of where to look.
        tried = (left > first) & (right < last)
        apart = (lax.max(low, high) > 16.0 * lax.min(low, high)) & (gap > found.scale) & ~found.trusted & tried
        leads_outside = ~inside(proposal, beyond)
        bisect = (slow >= 2) | apart | (state.evaluations >= GUESSES) | leads_outside
        halved = lax.select(near_by, left + 0.5 * gap, middle(left, right))
        proposal, beyond = lax.select(bisect, halved, proposal), lax.select(bisect, zero, beyond)

        stuck = bisect & ~((proposal > left) & (proposal < right))
        leads = found.trusted & (step != 0)
        arrived = found.converged & (~leads | leads_outside)
        settled = leads & (moved.hi == point) & (moved.lo == rest)
        narrow = where_extended(gap <= jnp.maximum(quarter_eps * found.scale, least))
        finished = arrived | settled | narrow | jnp.isnan(found.excess)
        done = was_done | finished | (stuck & (anchored if extended is True else anchored | ~jnp.asarray(extended)))
        go_between = stuck & ~done
        return State(
            anchor=lax.select(go_between, right, state.anchor),
            anchored=lax.max(state.anchored, go_between.astype(count.dtype)),
            point=lax.select(done, point, lax.select(go_between, -0.5 * gap, proposal)),
            rest=lax.select(done, rest, beyond),
            last_level=level,
            best_level=lax.min(state.best_level, size),
            left=lax.select(go_between, -gap, left),
            left_level=left_level,
            right=lax.select(go_between, zero, right),
            right_level=right_level,
            slow=lax.select(bisect, count, slow),
            done=done.astype(count.dtype) * limit,
            evaluations=lax.select(was_done, state.evaluations, state.evaluations + 1),
        )

    final = lax.while_loop(unfinished, lambda state: rows.fused(advance(state)), initial)
    # A row for which the bound is not enough would be an error of ours: it must not pass for a result.
    valid = (final.done > 0) & (final.last_level == final.last_level)
    total = two_sum(final.anchor, final.point)
    total = two_sum(total.hi, total.lo + final.rest)
    return Root(
        point=TwoFloat(choose(valid, total.hi, jnp.nan), total.lo),
        right=choose(valid, final.anchor + final.right, jnp.nan),
        evaluations=final.evaluations,
    )
