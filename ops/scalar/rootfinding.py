"""The root of a decreasing function of one scalar per row, in as few passes over the data as possible.

Every rule that guesses the next point converges slowly on some functions. Rows that have not converged after
``GUESSES`` evaluations are therefore bisected, which bounds the number of evaluations for any function:

- Bisection halves the number of floats in the bracket, not its length. Within ``bits`` steps (32, or 64) any bracket
  shrinks to two neighbouring floats, or to an eighth of ``scale``, the distance over which the function changes.
- Between two neighbouring floats, points are stored as distances from the upper one, and these distances are bisected
  in the same way. Within ``bits`` more steps the bracket shrinks to an eighth of ``scale``, or to two numbers that no
  pair of floats can distinguish.
- From an eighth of ``scale``, ``nmant - 1`` halvings (22, or 51) reach the resolution, a quarter of the machine epsilon
  times ``scale``. Three more steps allow for the variation of ``scale`` in the bracket.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ..arithmetic import TwoFloat, choose, middle, two_sum
from .rows import Rows, rows_without_derivative

# Typical rows converge after 3 to 8 evaluations.
GUESSES = 48


class Evaluation(NamedTuple):
    """The decreasing function ``excess(gamma)`` at one point, as one pass over the data gives it, per row.

    Attributes:
      excess: the value of the function, positive to the left of the root.
      level: an increasing function of ``excess`` with the same sign, more nearly linear in ``gamma`` far from the root;
        ``excess`` itself is allowed.
      step: the move to the root by a local model of the function, like Newton's; any number if it is not trusted.
      trusted: whether the local model is accurate as far as ``step`` leads.
      converged: whether ``gamma`` is a root to working precision. If a trusted non-zero ``step`` leads to another point
        inside the bracket, that point is evaluated too.
      scale: the move of ``gamma`` that changes the function by a good part; a move by a quarter of the machine epsilon
        times ``scale`` has no visible effect. It must be nearly constant within an eighth of ``scale``.
    """

    excess: Array
    level: Array
    step: Array
    trusted: Array
    converged: Array
    scale: Array


class End(NamedTuple):
    """An end of the initial bracket: a point at or beyond every root, and its ``level``, infinite if not known."""

    point: float | Array
    level: float | Array


class Root(NamedTuple):
    """The result of the search; every field has one value per row.

    Attributes:
      point: the root of ``excess``.
      right: the least evaluated float at which ``excess`` is not positive, or the right end if there is none;
        arbitrary where ``point`` is NaN.
      evaluations: int32, how many passes over the data the row took.
    """

    point: TwoFloat
    right: Array
    evaluations: Array


class State(NamedTuple):
    """The state of the search; every field has one value per row."""

    anchor: Array  # the origin of the points: 0, or the upper (or `nearer`) of the two floats around the root
    point: Array  # evaluated next, together with `rest`
    rest: Array  # the low part of the next point, less than the gap to the neighbouring float
    last_level: Array
    best_level: Array  # the least |level| so far
    left: Array
    left_level: Array
    right: Array
    right_level: Array
    slow: Array  # how many successive evaluations hardly lowered the best level
    done: Array  # 0 while the row is searched, then the bound on evaluations
    evaluations: Array


def most_evaluations(dtype: jnp.dtype) -> int:
    """Returns the bound on the number of evaluations that the module's docstring derives."""
    limits = jnp.finfo(dtype)
    return GUESSES + 2 * limits.bits + limits.nmant + 2


def find_root(
    evaluate: Callable[[TwoFloat], Evaluation],
    start: Array,
    left: End,
    right: End,
    *,
    extended: bool | Array = True,
    nearer: bool = False,
    rows: Rows | None = None,
    ahead: int = 0,
) -> Root:
    """Returns the root of ``excess`` between ``left`` and ``right``, for all rows at once.

    The search never leaves its bracket. The next point is that of the local model, if this is trusted, or that of false
    position (with Illinois weights), if the levels of both ends are known. Bisection replaces a point outside the
    bracket. It also takes over if both ends were evaluated and differ by orders of magnitude, if two evaluations in a
    row hardly lowered the best level, and after ``GUESSES`` evaluations.

    Args:
      evaluate: makes one pass over the data.
      start: first point, one per row; the middle of the bracket replaces a point that is not inside.
      left: an end at or to the left of every root, finite; one for all rows, or one per row.
      right: an end at or to the right of every root; one for all rows, or one per row.
      extended: whether points between two neighbouring floats are searched too; one for all rows, or one per row.
      nearer: whether points between two neighbouring floats are distances from the one whose level is nearer to 0, for
        roots that may lie just above a float. By default they are distances from the upper one.
      rows: how scalars per row are computed; by default as suits the device.
      ahead: how many evaluations come before the loop of the others (loop peeling).

    Returns:
      The root of each row, NaN if ``evaluate`` gave NaN, with the right end of its bracket and the number of passes.
    """
    rows = rows or rows_without_derivative(Rows())
    dtype = start.dtype
    quarter_eps = 0.25 * float(jnp.finfo(dtype).eps)
    least = 2.0 * float(jnp.finfo(dtype).tiny)  # smaller differences are flushed to 0 on some devices
    limit = most_evaluations(dtype)

    # Zeros derived from `start` vary over the same devices, and kernel compilers give them the same layout. Both are
    # required of the initial values of a loop.
    false = lax.abs(start) < 0
    zero, count = false.astype(dtype), false.astype(jnp.int32)

    def full(value: float | Array) -> Array:
        return zero + value if isinstance(value, float) else value

    infinite, first, last = full(jnp.inf), full(left.point), full(right.point)
    # This form stays finite if the right end is infinite. XLA would turn `0.5 * a + 0.5 * b` into a sum that overflows.
    finite = jnp.minimum(last, float(jnp.finfo(dtype).max))
    half_way = 0.5 * first + (finite - 0.5 * finite)
    initial = State(
        anchor=zero,
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

    def current_point(state: State) -> tuple[TwoFloat, Array]:
        """Returns the point, and whether it lies between two floats; these are not 0, where the search ends before."""
        anchored, point = state.anchor != 0, state.point
        return TwoFloat(lax.select(anchored, state.anchor, point), lax.select(anchored, point, state.rest)), anchored

    def advance(state: State) -> State:
        gamma, anchored = current_point(state)
        current = evaluate(gamma)
        point, rest = state.point, state.rest
        was_done = state.done > 0
        level, step = current.level, current.step
        is_left = current.excess > 0
        # The ends are single floats, rounded outwards so that the root stays between them.
        below = lax.select(rest < 0, jnp.nextafter(point, -jnp.inf), point)
        above = lax.select(rest > 0, jnp.nextafter(point, jnp.inf), point)
        left = lax.select(is_left, lax.max(below, state.left), state.left)
        right = lax.select(is_left, state.right, lax.min(above, state.right))
        gap = right - left

        def where_extended(condition: Array) -> Array:
            """Returns the condition in rows whose search goes on between neighbouring floats, else false."""
            return condition if extended is True else condition & extended

        def inside(candidate: Array, beyond: Array = zero) -> Array:
            # Comparisons, because some devices flush a small difference to 0.
            after = (candidate > left) | ((candidate == left) & (beyond > 0))
            return after & ((candidate < right) | ((candidate == right) & (beyond < 0)))

        # Illinois rule: halving the level of an end kept twice in a row keeps false position from creeping.
        repeated = (is_left == (state.last_level > 0)) & (state.last_level < jnp.inf)
        kept = lax.select(is_left, state.right_level, state.left_level)
        kept = lax.select(repeated, 0.5 * kept, kept)
        left_level, right_level = lax.select(is_left, level, kept), lax.select(is_left, kept, level)
        interpolated = left + left_level / (left_level - right_level) * gap

        size = lax.abs(level)
        slow = choose(size > 0.7 * state.best_level, state.slow + 1, 0)
        moved = two_sum(point, rest + step)
        proposal = lax.select(current.trusted, moved.hi, interpolated)
        beyond = lax.select(where_extended(current.trusted), moved.lo, zero)

        near = gap < 0.125 * current.scale
        low, high = lax.abs(left), lax.abs(right)
        # Ends that were not evaluated may be the extreme floats, and are no evidence of where the root lies.
        evaluated = (left > first) & (right < last)
        far = (lax.max(low, high) > 16.0 * lax.min(low, high)) & (gap > current.scale) & ~current.trusted & evaluated
        leads_outside = ~inside(proposal, beyond)
        bisect = (slow >= 2) | far | (state.evaluations >= GUESSES) | leads_outside
        halved = lax.select(near, left + 0.5 * gap, middle(left, right))
        proposal, beyond = lax.select(bisect, halved, proposal), lax.select(bisect, zero, beyond)

        stuck = bisect & ~((proposal > left) & (proposal < right))
        leads = current.trusted & (step != 0)
        arrived = current.converged & (~leads | leads_outside)
        settled = leads & (moved.hi == point) & (moved.lo == rest)
        narrow = where_extended(gap <= jnp.maximum(quarter_eps * current.scale, least))
        finished = arrived | settled | narrow | jnp.isnan(current.excess)
        done = was_done | finished | (stuck & (anchored if extended is True else anchored | ~jnp.asarray(extended)))
        start_between = stuck & ~done  # the search goes on between two floats, from one of them
        origin, inwards = right, -0.5 * gap
        if nearer:
            from_left = lax.abs(left_level) < lax.abs(right_level)
            origin, inwards = lax.select(from_left, left, right), lax.select(from_left, -inwards, inwards)
        return State(
            anchor=lax.select(start_between, origin, state.anchor),
            point=lax.select(done, point, lax.select(start_between, inwards, proposal)),
            rest=lax.select(done, rest, beyond),
            last_level=level,
            best_level=lax.min(state.best_level, size),
            left=lax.select(start_between, left - origin, left),
            left_level=left_level,
            right=lax.select(start_between, right - origin, right),
            right_level=right_level,
            slow=lax.select(bisect, count, slow),
            done=done.astype(count.dtype) * limit,
            evaluations=lax.select(was_done, state.evaluations, state.evaluations + 1),
        )

    def next_state(state: State) -> State:
        return rows.fused(advance(state))

    state = initial
    for _ in range(ahead):
        state = next_state(state)
    final = lax.while_loop(unfinished, next_state, state)
    # A row that exceeds the bound would be a bug of this module, and NaN shows it.
    valid = (final.done > 0) & (final.last_level == final.last_level)
    point = two_sum(*current_point(final)[0])
    return Root(
        point=TwoFloat(choose(valid, point.hi, jnp.nan), point.lo),
        right=final.anchor + final.right,
        evaluations=final.evaluations,
    )
