"""The root of the scalar equation (``ops.equation``): solved in few passes over the data, differentiated implicitly."""

import functools

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from ops.equation import Equation, active_position, inner, partly, position
from ops.nonlinearities import HALF_SQUARE
from ops.powers import power
from ops.rootfinding import Evaluation, find_root
from ops.rows import solve_rows
from ops.shrinkage import shrink, unshifted
from ops.twofloat import TwoFloat

# Entries looked at per row to guess where the root lies: a guess only, so a few hundred do.
_SAMPLE = 256


def _sums(entries: tuple[Array, ...], gamma: TwoFloat, lam: Array, equation: Equation) -> tuple[Array, Array, Array]:
    """Count of the fully selected (int32); sums over the active set of ``z`` and of ``dz/dt / exponent``."""
    exponent, rows = equation.exponent, equation.rows

    def full(s: Array) -> Array:
        return position(s, gamma, lam, equation) >= 1

    def partial(s: Array) -> Array:
        t = position(s, gamma, lam, equation)
        # Not `partly`: a NaN has to reach the sum, to mark its row.
        return jnp.where((t <= 0) | (t >= 1), 0.0, power(t, exponent))

    def share(s: Array) -> Array:
        return inner(position(s, gamma, lam, equation), exponent - 1)

    return rows.count(full, entries), rows.sum(partial, entries), rows.sum(share, entries)


def remainder(k: Array, count: Array) -> Array:
    """``k - count`` for an integer ``count``, exact also where a float does not hold every integer any more."""
    whole = jnp.floor(k)
    # NaN has no integer part: it must come out again through the fraction.
    steps = jnp.where(jnp.isnan(k), 0.0, whole).astype(count.dtype) - count
    return steps.astype(k.dtype) + (k - whole)


def _visible(gamma: Array, width: Array, lam: Array, equation: Equation) -> Array:
    """How far ``gamma`` has to move to change the selection a good deal."""
    if equation.linear or equation.phi == HALF_SQUARE:
        return width
    # A slope that grows fast makes for more of a change than moving past the entries. It may overflow.
    return jnp.where(width < jnp.inf, width / (1.0 + equation.width_slope(gamma, lam)), 0.0)


def _evaluate(entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation, gamma: TwoFloat) -> Evaluation:
    value = gamma.hi + gamma.lo
    width = equation.width(value, lam)
    full, partial, weight = _sums(entries, gamma, lam, equation)
    rest = remainder(k, full)  # what the active set has to add up to
    excess = partial - rest
    exponent = equation.exponent
    slope = exponent * (weight + equation.width_slope(value, lam) * partial) / width
    if exponent == 1:
        change = excess
    else:
        # Newton on partial ** (1 / exponent), nearly linear in gamma where partial itself is nearly a power; written
        # so that partial - rest, all but equal near the root, cancel only once.
        surplus = jnp.where(partial > 0, jnp.minimum(excess / partial, 1.0), 0.0)
        change = -exponent * partial * jnp.expm1(jnp.log1p(-surplus) / exponent)
    step = change / slope
    if equation.folded:
        step = step / (1.0 - step / value)  # in 1 / gamma, in which that of `half_square` is linear for p = 2
    eps = jnp.finfo(k.dtype).eps
    small = jnp.abs(excess) <= 4 * eps * jnp.maximum(partial, jnp.minimum(k, 1.0))
    # Where the gap at k is wider than the width, every gamma in an interval is a root, and selects nothing in part.
    # At its very ends rounding would leave 1 - eps or some 1e-20: a step further in, they are 1 and 0.
    whole = rest == jnp.round(rest)
    ends = small & (excess != 0) & whole & ((partial < 0.5) | (partial >= (1 - 8 * eps) * weight))
    inwards = jnp.sign(excess) * jnp.maximum(2.0 * jnp.abs(step), eps * width)
    return Evaluation(
        excess=excess,
        step=jnp.where(ends, inwards, step),
        trusted=(jnp.isfinite(step) & (jnp.abs(excess) <= slope * width)) | ends,
        converged=small & ~ends,
        resolution=0.25 * eps * _visible(value, width, lam, equation),
    )


def usable(s: Array, equation: Equation) -> Array:
    """Entries that can be selected at all."""
    return s > 0 if equation.folded else s > -jnp.inf


def guess(
    entries: tuple[Array, ...], k: Array, available: Array, lam: Array, equation: Equation
) -> tuple[Array, Array]:
    """Where the root would lie for Gaussian entries, and how dense entries would be there.

    ``clip(t, 0, 1) ** (1 / (p - 1))`` is the distribution function of ``U ** (p - 1)``, ``U`` uniform, so the
    equation says that ``gamma`` is a quantile of ``s - width * U ** (p - 1)``: of a variable whose mean and variance
    follow from those of ``s``.
    """
    rows, p = equation.rows, equation.p
    if rows.axis is not None:
        entries = tuple(s[:, :: max(1, s.shape[1] // _SAMPLE)] for s in entries)

    def finite(s: Array) -> Array:
        return usable(s, equation) & (s < jnp.inf)

    largest = rows.max(lambda s: jnp.where(finite(s), jnp.abs(s), 0.0), entries)
    unit = jnp.where(largest > 0, largest, 1.0)  # the moments are taken of s / unit, so as not to overflow
    count = jnp.maximum(rows.sum(lambda s: finite(s).astype(unit.dtype), entries), 1.0)
    folded = equation.folded  # magnitudes of Gaussian entries with mean 0: two tails
    mean = 0.0 * unit if folded else rows.sum(lambda s: jnp.where(finite(s), s / unit, 0.0), entries) / count
    spread = rows.sum(lambda s: jnp.where(finite(s), jnp.square(s / unit - mean), 0.0), entries) / count

    tail = jnp.clip(k / jnp.maximum(available, 1.0), 1e-6, 1 - 1e-6) / (2.0 if folded else 1.0)
    quantile = jax.scipy.special.ndtri(1.0 - tail)
    variance = 1.0 / (2.0 * p - 1.0) - 1.0 / p**2  # of U ** (p - 1), whose mean is 1 / p
    deviation = jnp.sqrt(spread)
    if equation.linear:
        width = lam / unit
        deviation = jnp.sqrt(spread + variance * jnp.square(width))
        start = mean + deviation * quantile - width / p
    else:
        # The width depends on gamma itself: first as if there were none, then that of the first guess.
        scaled = equation.phi == HALF_SQUARE  # whose equation can be written in s / unit
        strength = lam * unit ** (p - 2.0) if scaled else lam
        start = mean
        for _ in range(2):
            if scaled:
                start = shrink(deviation * quantile, strength / p, p)
                width = equation.width(start, strength)
            else:
                start = unshifted(unit * (mean + deviation * quantile), lam / p, equation) / unit
                width = equation.width(unit * start, lam) / unit
            deviation = jnp.sqrt(spread + variance * jnp.square(width))
    sides = 2.0 if folded else 1.0
    density = sides * available * jnp.exp(-0.5 * jnp.square(quantile)) / jnp.sqrt(2 * jnp.pi) / (deviation * unit)
    return start * unit, density


def _solve(entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation) -> TwoFloat:
    available = equation.rows.count(lambda s: usable(s, equation), entries).astype(k.dtype)
    k = jnp.minimum(k, available)
    start, density = guess(entries, k, available, lam, equation)
    return find_root(
        functools.partial(_evaluate, entries, k, lam, equation),
        start,
        density,
        lower=equation.lower(k.dtype),
        upper=float(jnp.finfo(k.dtype).max),
    ).point


def pooled_value(entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation) -> TwoFloat:
    """The value ``gamma`` of the pooled block: the root of the scalar equation, or 0 where a kink there holds it."""
    gamma = threshold(entries, k, lam, equation)
    if not equation.kinked:
        return gamma
    held = gamma.hi < 0
    return TwoFloat(jnp.where(held, 0.0, gamma.hi), jnp.where(held, 0.0, gamma.lo))


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def threshold(entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation) -> TwoFloat:
    """The root ``gamma`` of the scalar equation, one per row.

    Args:
      entries: floating arrays laid out as ``equation.rows`` says, all of the dtype of ``k``; for an even ``phi``
        non-negative. Entries equal to ``-inf`` are never selected.
      k: how much is selected in total, one value per row, >= 0; more than there are entries selects them all.
      lam: strength of the regularisation, one value per row; 0 is taken as the smallest positive number.
      equation: exponent, nonlinearity and layout.

    Returns:
      One value per row. ``hi`` is a constant to differentiation and ``lo`` carries the derivative. A row with a NaN
      among its entries, or a NaN ``k`` or ``lam``, gets NaN.
    """
    return solve_rows(functools.partial(_solve, equation=equation), entries, k, lam, equation.rows)


@functools.partial(threshold.defjvp, symbolic_zeros=True)
def _threshold_jvp(equation, primals, tangents):
    """Implicit function theorem on the scalar equation: Proposition 7 for the one block there is."""
    entries, k, lam = primals
    entries_dot, k_dot, lam_dot = tangents
    gamma = threshold(entries, k, lam, equation)
    value = gamma.hi + gamma.lo
    rows, exponent = equation.rows, equation.exponent

    def share(s: Array) -> Array:
        return inner(active_position(s, gamma, lam, equation), exponent - 1)

    def partial(s: Array) -> Array:
        return inner(active_position(s, gamma, lam, equation), exponent)

    def moves(pair: tuple[Array, Array]) -> Array:
        s, s_dot = pair
        t = active_position(s, gamma, lam, equation)
        return jnp.where(partly(t), inner(t, exponent - 1) * s_dot, 0.0)

    moved = jnp.zeros_like(value)
    for s, s_dot in zip(entries, entries_dot, strict=True):
        if not isinstance(s_dot, SymbolicZero):
            moved = moved + rows.sum(moves, ((s, s_dot),))
    total = rows.sum(share, entries)
    if not equation.linear:
        total = total + equation.width_slope(value, lam) * rows.sum(partial, entries)
    if not isinstance(lam_dot, SymbolicZero):
        moved = moved - equation.width(value, jnp.ones_like(lam)) * rows.sum(partial, entries) * lam_dot
    if not isinstance(k_dot, SymbolicZero):
        moved = moved - equation.width(value, lam) / exponent * k_dot
    # No active entry: the selection is locally constant (the hard regime), and so is gamma as far as it can tell.
    some = total > 0
    gamma_dot = jnp.where(some, moved / jnp.where(some, total, 1.0), 0.0)
    return gamma, TwoFloat(jnp.zeros_like(gamma.hi), gamma_dot)
