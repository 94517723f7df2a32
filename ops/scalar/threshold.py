"""The root of the scalar equation, found in a few passes over the data and differentiated implicitly."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from ..arithmetic import TwoFloat, choose, expm1, power, select, shift
from ..nonlinearities import HALF_SQUARE
from .equation import Equation, active_position, inner, partly, position
from .kernels.platforms import PLATFORMS, kernels_for
from .rootfinding import End, Evaluation, find_root
from .rows import Rows, VectorRows, called, summed, vector_rows
from .shrinkage import find_unshifted, shrink_roughly

# The first guess uses every eighth entry of a long row, and about 256 entries of a shorter one, which saves half a pass
# over the row.
_SAMPLE, _STRIDE = 256, 8

# Returns, for a threshold, the number of fully selected entries (int32), and the sums of ``z`` and of ``dz/dt`` divided
# by the exponent over the active set.
Sums = Callable[[TwoFloat], tuple[Array, Array, Array]]


def _sums(entries: tuple[Array, ...], gamma: TwoFloat, lam: Array, equation: Equation) -> tuple[Array, Array, Array]:
    """Returns the sums that ``Sums`` stands for."""
    exponent, rows = equation.exponent, equation.rows
    if equation.zero == "all":
        nothing = jnp.zeros_like(lam)
        return rows.sum(lambda s: position(s, gamma, lam, equation) >= 1, entries), nothing, nothing

    def of_entry(s: Array) -> tuple[Array, Array, Array]:
        t = position(s, gamma, lam, equation)
        full = t >= 1
        # A NaN must reach a sum, so that it marks its row: `full` is false for it, and the maximum keeps it.
        some = rows.at_least(t, 0.0)
        partial = choose(full, 0.0, power(some, exponent))
        if exponent == 1:
            return full, partial, partly(t)
        return full, partial, choose(full, 0.0, power(some, exponent - 1))

    full, partial, weight = rows.sum(of_entry, entries)
    return full, partial, weight.astype(partial.dtype)


def remainder(k: Array, count: Array) -> Array:
    """Returns ``k - count`` for an integer ``count``, exact even where floats do not hold every integer."""
    floor = jnp.floor(k)
    # The integer part of a NaN is arbitrary, but its fraction makes the result NaN.
    return (floor.astype(count.dtype) - count).astype(k.dtype) + (k - floor)


def _log_odds(excess: Array, k: Array, available: Array) -> Array:
    """Returns the log odds of the selected share minus those of ``k``: often nearly linear in gamma."""
    missing = excess / (available - k + 0.1)
    return jnp.log1p((excess / (k + 0.1) + missing) / (1.0 - missing))


def _visible(gamma: Array, lam: Array, equation: Equation) -> Array:
    """Returns the move of ``gamma`` that changes the selection by a good part."""
    if equation.zero == "all":
        return jnp.zeros_like(gamma)
    visible = equation.width(gamma, lam)  # 0 for lam = 0, where the search ends between neighbouring floats
    if not equation.linear:
        # A fast growth of the width changes the selection more than gamma itself does. The slope may overflow.
        slope = equation.width_slope(gamma, lam)
        visible = choose(visible < jnp.inf, visible / (1.0 + slope), 0.0)
        if equation.folded:
            visible = jnp.minimum(visible, gamma)
    return visible


def _evaluate(sums: Sums, k: Array, available: Array, lam: Array, equation: Equation, gamma: TwoFloat) -> Evaluation:
    value = gamma.hi if equation.linear else gamma.hi + gamma.lo  # the width of a mask does not depend on it
    full, partial, weight = sums(gamma)
    rest = remainder(k, full)  # the sum that the active set must have
    excess = partial - rest
    level = _log_odds(excess, k, available)
    scale = _visible(value, lam, equation)
    if equation.zero == "all":
        exact = excess == 0
        return Evaluation(excess, level, jnp.zeros_like(excess), jnp.zeros_like(exact), exact, scale)

    exponent = equation.exponent
    width = equation.width(value, lam)
    moving = weight if equation.linear else weight + equation.width_slope(value, lam) * partial
    slope = (moving if exponent == 1 else exponent * moving) / width
    if exponent == 1:
        change = excess
    else:
        # Newton on partial ** (1 / exponent), nearly linear in gamma where partial itself is nearly a power. Near the
        # root partial and rest are almost equal, and this form cancels only once.
        surplus = choose(partial > 0, jnp.minimum(excess / partial, 1.0), 0.0)
        change = -exponent * partial * expm1(jnp.log1p(-surplus) / exponent)
        # Far from the root the density of the entries decides, and the step is Newton's in gamma.
        change = choose(jnp.abs(excess) <= partial, change, excess)
    step = change / slope
    if equation.folded:
        step = step / (1.0 - step / value)  # Newton's step in 1 / gamma, in which `half_square` is linear for p = 2
    # With many active entries the local density is a good estimate further away, too.
    reach = slope * width * jnp.maximum(1.0, 0.5 * jnp.sqrt(weight))
    eps = jnp.finfo(k.dtype).eps
    # Rounding every position by a relative eps changes `partial` by exponent * eps relatively. A width that depends on
    # gamma adds a few more roundings.
    roundings = (2 if equation.linear else 4) * (1 + exponent)
    # If the gap between entries at k is wider than the width, every gamma of an interval is a root that selects nothing
    # in part. At its ends rounding leaves shares like 1 - eps or 1e-20; a step further inside they are 1 and 0.
    is_integer = rest == jnp.floor(rest)
    tolerance = eps * jnp.maximum(roundings * partial, choose(is_integer, 4 * jnp.minimum(k, 1.0), 0.0))
    if equation.zero == "some":  # hard rows count exactly
        tolerance = choose(lam == 0, 0.0, tolerance)
    small = jnp.abs(excess) <= tolerance
    none = partial < 0.5
    at_end = small & (excess != 0) & is_integer & (none | (partial >= (1 - 8 * eps) * weight))
    size = jnp.abs(step)
    inwards = jnp.sign(excess) * (lax.select(none, size, 2.0 * size) + eps * scale)
    return Evaluation(
        excess=excess,
        level=level,
        step=choose(at_end, inwards, choose(small, 0.0, step)),
        trusted=(jnp.isfinite(step) & (jnp.abs(excess) <= reach)) | at_end,
        converged=small & ~at_end,
        scale=scale,
    )


class Extent(NamedTuple):
    """Per row: how many entries are available, a lower bound of them, and the largest."""

    available: Array
    smallest: Array
    largest: Array


def extent(entries: tuple[Array, ...], lam: Array, equation: Equation) -> Extent:
    """Returns the extent of every row, without NaNs; bounds are 0 in rows without available entries."""
    # Magnitudes are not negative.
    available, smallest, largest = equation.rows.extent(entries, equation.floor(lam), signed=not equation.phi.even)
    smallest = choose(smallest == jnp.inf, 0.0, smallest)
    largest = equation.tied(choose(largest == -jnp.inf, 0.0, largest), lam)
    return Extent(available.astype(largest.dtype), smallest, largest)


def guess(entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation, size: Extent) -> tuple[Array, Array]:
    """Returns the root for Gaussian entries of the same moments, and the rate at which the log odds fall there.

    ``clip(t, 0, 1) ** (1 / (p - 1))`` is the distribution function of ``U ** (p - 1)`` with ``U`` uniform. So ``gamma``
    is a quantile of ``s - width * U ** (p - 1)``, whose mean and variance follow from those of ``s``.
    """
    rows, p = equation.rows, equation.p
    if rows.axis is not None:
        entries = tuple(s[:, :: max(1, min(s.shape[1] // _SAMPLE, _STRIDE))] for s in entries)

    floor = equation.floor(lam)

    def finite(s: Array) -> Array:
        return jnp.abs(s) < jnp.inf if isinstance(floor, float) and floor < 0 else (s > floor) & (s < jnp.inf)

    largest = jnp.maximum(jnp.abs(size.smallest), jnp.abs(size.largest))
    sensible = (largest > 0) & (largest < jnp.inf)
    unit = choose(sensible, largest, 1.0)  # moments of s / unit do not overflow

    def moment(s: Array) -> tuple[Array, Array]:
        is_finite = finite(s)
        return is_finite, choose(is_finite, s / unit, 0.0)

    count, total = rows.sum(moment, entries)
    count = jnp.maximum(count, 1).astype(unit.dtype)
    folded = equation.folded  # magnitudes of Gaussian entries with mean 0: two tails
    mean = jnp.zeros_like(unit) if folded else total / count
    spread = rows.sum(lambda s: choose(finite(s), jnp.square(s / unit - mean), 0.0), entries) / count

    tail = jnp.minimum(jnp.maximum(k / jnp.maximum(size.available, 1.0), 1e-6), 1 - 1e-6) / (2.0 if folded else 1.0)
    # Tukey's approximation of the Gaussian quantile, to 0.1 between 1e-4 and 1 - 1e-4.
    quantile = ((1.0 - tail) ** 0.1349 - tail**0.1349) / 0.1975
    variance = 1.0 / (2.0 * p - 1.0) - 1.0 / p**2  # of U ** (p - 1), whose mean is 1 / p
    falls = 1.6 + 0.2 * jnp.square(quantile)  # for a standard Gaussian variable, to 5 %
    if equation.linear:
        width = lam / unit
        deviation = jnp.sqrt(spread + variance * jnp.square(width))
        return unit * (mean + deviation * quantile - width / p), falls / (deviation * unit)
    deviation = jnp.sqrt(spread)
    # The width depends on gamma itself. The first guess takes it as 0, the second takes that of the first guess.
    scaled = equation.phi == HALF_SQUARE  # only this equation can be written in s / unit
    strength = lam * unit ** (p - 2.0) if scaled else lam
    start = mean
    for _ in range(2):
        if scaled:
            start = shrink_roughly(deviation * quantile, strength / p, p)
            width = equation.width(start, strength)
        else:
            # A form with a derivative rule would make JAX store the equation and its rows, which may hold a tracer.
            start = find_unshifted(unit * (mean + deviation * quantile), lam / p, equation) / unit
            width = equation.width(unit * start, lam) / unit
        deviation = jnp.sqrt(spread + variance * jnp.square(width))
    return start * unit, falls / (deviation * unit)


def _ends(start: Array, falls: Array, lam: Array, equation: Equation, size: Extent) -> tuple[End, End]:
    """Returns points at which everything and nothing is selected, with levels on a straight line through the guess."""
    limits = jnp.finfo(start.dtype)
    least, largest = float(limits.min), float(limits.max)
    # The ends lie beyond the entries by some distance, so that there is a root if k asks for all or none.
    margin = (size.largest - size.smallest) + 2.0 * lam
    low = jnp.maximum(jnp.nextafter(size.smallest - margin, -jnp.inf), least)
    falls = jnp.minimum(falls, largest)  # infinite for entries that coincide: 0 * inf is no level
    high = jnp.nextafter(size.largest + margin, jnp.inf)
    # In relaxed rows gamma is finite; entries at +inf can be selected in full only in hard rows.
    if equation.zero == "none":
        low = low if equation.linear else jnp.full_like(low, equation.lower(low.dtype))
        high = jnp.minimum(high, largest)
    elif equation.zero == "some":
        low = low if equation.linear else choose(lam == 0, low, equation.lower(low.dtype))
        high = choose(lam > 0, jnp.minimum(high, largest), high)
    return (
        End(low, jnp.minimum(jnp.maximum(falls * (start - low), 0.1), largest)),
        End(high, jnp.minimum(jnp.maximum(falls * (start - high), -largest), -0.1)),
    )


def _solve(entries: tuple[Any, ...], k: Array, lam: Array, equation: Equation) -> tuple[TwoFloat, Array]:
    """Returns the threshold, and how many passes each row took."""
    size = extent(entries, lam, equation)
    k = equation.rows.at_most(k, size.available)
    if equation.zero == "all":  # comparisons ignore a NaN, which must mark its row
        k = choose(equation.rows.sum(jnp.isnan, entries) > 0, jnp.nan, k)
    start, falls = guess(entries, k, lam, equation, size)
    ahead = equation.rows.ahead(entries)
    return search(lambda gamma: _sums(entries, gamma, lam, equation), k, lam, equation, size, start, falls, ahead)


def search(
    sums: Sums, k: Array, lam: Array, equation: Equation, size: Extent, start: Array, falls: Array, ahead: int = 0
) -> tuple[TwoFloat, Array]:
    """Returns the threshold, and how many passes each row took, from a guess ``start`` and the ``sums`` at a point."""
    left, right = _ends(start, falls, lam, equation, size)
    root = find_root(
        functools.partial(_evaluate, sums, k, size.available, lam, equation),
        start,
        left,
        right,
        extended=True if equation.zero == "none" else lam > 0,
        rows=equation.rows,
        ahead=ahead,
    )
    zero, valid = jnp.zeros_like(k), root.point.hi == root.point.hi  # false for a row with a NaN
    # For k = 0 the threshold is above all entries, so that rounding or underflow select nothing.
    above = TwoFloat(jnp.nextafter(size.largest, jnp.inf), zero)
    point = select((k == 0) & valid, above, root.point)
    if equation.zero != "none":
        point = select((k > 0) & (lam == 0) & valid, TwoFloat(root.right, zero), point)
    return point, root.evaluations


def evaluations(entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation) -> Array:
    """Returns how many passes over the data each row takes, int32, in the shape of ``k``; for studies of the solver."""
    return _solve(entries, k, lam, equation)[1]


def highest(gamma: TwoFloat, lam: Array, some: Array, partly: Array, least: Array, largest: Array) -> TwoFloat:
    """Returns the highest threshold of a mask with the selection of ``gamma``, one value per row.

    Where nothing is selected in part, every number from the largest entry not selected to the least one selected minus
    ``lam`` is a root, and which of them the solver finds depends on entries far away and on rounding. This one is the
    limit as ``k`` grows, and has its derivative.

    Args:
      gamma: the threshold that the solver found.
      lam: strength of the regularisation.
      some: whether the row selects anything; if not, the result is the largest entry, or 0 if there is none.
      partly: whether it selects anything in part, at ``lam > 0``; then ``gamma`` is the only root.
      least: the least entry selected.
      largest: the largest entry not selected, ``-inf`` if there is none.
    """
    # A little more than lam, so that the position of the least entry is not rounded below 1.
    width = lam * (1.0 + 4.0 * jnp.finfo(lam.dtype).eps)
    above = choose(some, least, choose(largest > -jnp.inf, largest, 0.0))
    top = shift(TwoFloat(above, jnp.zeros_like(lam)), choose(some, -width, 0.0))
    clear = ~some | (least - largest >= width)
    replaced = clear & ~partly & jnp.isfinite(top.hi) & ~jnp.isnan(gamma.hi)
    fixed = lax.stop_gradient(top.hi)
    return select(replaced, TwoFloat(fixed, top.lo + (top.hi - fixed)), gamma)


class Given(NamedTuple):
    """The operator's own arguments, from which a kernel computes the competing keys as it reads them.

    Attributes:
      entries: arrays such that the keys are ``equation.keys(entries * scale)``.
      scale: one factor per row; ``None`` for 1.
    """

    entries: tuple[Array, ...]
    scale: Array | None = None


def _solve_on(entries: tuple[Any, ...], k: Array, lam: Array, rows: Rows, *, equation: Equation) -> TwoFloat:
    return _solve(entries, k, lam, dataclasses.replace(equation, rows=rows))[0]


@functools.partial(jax.jit, static_argnames=("equation", "rows"), inline=True)
def _solve_in_loops(
    entries: tuple[Array, ...], k: Array, lam: Array, given: Given | None, equation: Equation, rows: VectorRows
) -> TwoFloat:
    """Returns ``threshold`` by the loops of a CPU.

    JAX calls ``threshold`` again for a derivative, and ``jit`` keeps what has been traced.
    """
    read, scale = given or (entries, None)

    def unsigned(x: Array) -> Array:
        return equation.unsigned(x if scale is None else x * scale) if given else x

    solve = functools.partial(_solve_on, rows=dataclasses.replace(rows, keys=unsigned), equation=equation)
    zeros = TwoFloat(jnp.zeros_like(k), jnp.zeros_like(k))
    return called(functools.partial(rows.compact, solve, zeros), read, k, lam)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def threshold(
    entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation, given: Given | None = None
) -> TwoFloat:
    """Returns the root ``gamma`` of the scalar equation; at ``lam = 0`` the least number with at most ``k`` above it.

    Args:
      entries: floating arrays laid out as ``equation.rows`` says, all of the dtype of ``k``; for an even ``phi``
        non-negative. Entries equal to ``-inf`` are never selected.
      k: how much is selected in total, one value per row, >= 0; a ``k`` above the number of entries selects all.
      lam: strength of the regularisation, one value per row, >= 0.
      equation: exponent, nonlinearity, layout, and which ``lam`` are 0.
      given: the arrays that ``entries`` were computed from, which a kernel reads instead; they get no derivative.

    Returns:
      One value per row. ``hi`` is a constant to differentiation and ``lo`` carries the derivative. A row with a NaN
      among its entries, or a NaN ``k`` or ``lam``, gets NaN.
    """

    forced = equation.method == "kernel"
    read, scale = given or (entries, None)
    rows = None if forced else vector_rows(equation.rows, read)
    if rows is not None:
        return _solve_in_loops(entries, k, lam, given, equation=equation, rows=rows)
    solve = functools.partial(_solve_on, equation=equation)
    platforms = PLATFORMS if forced else kernels_for(entries, equation)
    if not platforms:
        return solve(entries, k, lam, equation.rows)
    from .kernels.solver import solve_in_kernel  # importing Pallas takes half a second

    def keys(x: Array, k: Array, lam: Array, *scale: Array) -> Array:
        return equation.keys(x * scale[0] if scale else x, lam) if given else x

    scalars = (k, lam) if scale is None else (k, lam, scale)
    return solve_in_kernel(read[0], scalars, keys=keys, solve=solve, platforms=platforms, interpret=forced)


@functools.partial(threshold.defjvp, symbolic_zeros=True)
def _threshold_jvp(equation, primals, tangents):
    """Applies the implicit function theorem to the scalar equation: Proposition 7 for its single block."""
    entries, _, lam, _ = primals
    entries_dot, k_dot, lam_dot, _ = tangents
    gamma = threshold(*primals[:3], equation, *primals[3:])
    value = gamma.hi + gamma.lo
    rows, exponent = equation.rows, equation.exponent

    positions = tuple(active_position(s, gamma, lam, equation) for s in entries)
    weights = tuple(inner(t, exponent - 1) for t in positions)

    def resistance(t: Array, weight: Array) -> Array:
        return choose(weight > 0, weight * equation.steepening(t, value, lam), 0.0)

    moved = jnp.zeros_like(value)
    moving = tuple(pair for pair in zip(weights, entries_dot, strict=True) if not isinstance(pair[1], SymbolicZero))
    if moving:
        moved = rows.sum(lambda pair: choose(pair[0] > 0, pair[0] * pair[1], 0.0), moving)
    total = summed(weights if equation.linear else tuple(map(resistance, positions, weights)), rows)
    # Without active entries the selection is locally constant (the hard regime), and gamma is taken as constant.
    moves = total > 0
    if not isinstance(lam_dot, SymbolicZero):
        width = choose(moves, equation.width(value, jnp.ones_like(lam)), 0.0)
        partial = summed(tuple(inner(t, exponent) for t in positions), rows)
        moved = moved - width * partial * lam_dot
    if not isinstance(k_dot, SymbolicZero):
        moved = moved - choose(moves, equation.width(value, lam), 0.0) / exponent * k_dot
    gamma_dot = choose(moves, moved / choose(moves, total, 1.0), 0.0)
    return gamma, TwoFloat(jnp.zeros_like(value), gamma_dot)
