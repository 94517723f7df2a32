"""Relaxed top-k in magnitude, and that of every other ``phi`` whose slope varies, in the layout of the solvers."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..interface.arguments import ZeroLam
from ..nonlinearities import HALF_SQUARE
from .choice import choose
from .cpu import rows_without_derivative
from .equation import Equation, active_position, dense, inner, partly, position_jvp, steepness
from .mask import Selected, select_topk
from .shrinkage import before_slope
from .slope_in_k import with_slope_in_k
from .threshold import Given
from .twofloat import TwoFloat, power_of_two, select


def _signed(x: Array, magnitude: Array, equation: Equation) -> Array:
    return jnp.sign(x) * magnitude if equation.phi.even else magnitude


@functools.partial(jax.custom_jvp, nondiff_argnums=(6, 7))
def _kept(
    x: Array, z: Array, full: Array, gamma: TwoFloat, lam: Array, at_zero: Array, equation: Equation, debias: bool
) -> Array:
    """What is left of ``x``: ``full`` of a fully kept entry, 0 of most, and between the two of a partly kept one.

    A partly kept entry is ``y = z * phi'(gamma)``, with the sign of ``x`` if ``phi`` is even. Debiasing, of
    ``half_square`` alone, gives back ``lam * y ** (p - 1) = |x| - gamma``, so that ``y = |x| - (1 - z) * gamma``.
    ``z`` is a constant to differentiation: what it depends on is known here. An entry that is 0 moves as if ``at_zero``
    of it were selected (``share_at_zero``), where that is not 0.
    """
    slope = equation.slope(gamma.hi + gamma.lo)
    if debias and equation.zero != "all":
        # Right also where z underflows: what is not selected is at most gamma, and all of it is taken.
        taken = (1.0 - z) * slope
        part = x - jnp.clip(x, -taken, taken)
        return part if equation.zero == "none" else choose(lam == 0, z * full, part)
    part = z * full if equation.zero == "all" else _signed(x, z * slope, equation)
    return choose(z == 1, full, choose(z == 0, 0.0, part))


@functools.partial(_kept.defjvp, symbolic_zeros=True)
def _kept_jvp(equation, debias, primals, tangents):
    x, z, full, gamma, lam, at_zero = primals
    x_dot, _, full_dot, gamma_dot, lam_dot, _ = tangents
    x_dot, full_dot, gamma_dot = dense(x_dot, x), dense(full_dot, full), TwoFloat(*map(dense, gamma_dot, gamma))
    kept = _kept(*primals, equation, debias)
    # Without relaxation what is kept, the last of it in part, moves as it is.
    z = choose((x == 0) & (at_zero > 0), at_zero, z)
    whole_dot = choose(z == 0, 0.0, z * full_dot)
    if equation.zero == "all":
        return kept, whole_dot
    value = gamma.hi + gamma.lo
    t = active_position(equation.keys(x, lam), gamma, lam, equation, underflows=debias)
    passed, value_dot = position_jvp(t, _signed(x, x_dot, equation), gamma_dot, gamma, lam_dot, lam, equation)
    steep = steepness(t, equation.slope(value), gamma, lam, equation)
    slope_dot = equation.curvature(value) * value_dot
    y_dot = choose(steep > 0, steep * passed, 0.0) + inner(t, equation.exponent) * slope_dot
    if debias:
        y_dot = y_dot - slope_dot + _signed(x, x_dot, equation)
    return kept, choose(partly(t), _signed(x, y_dot, equation), whole_dot)


def keep(
    x: Array, key: Array, z: Array, gamma: TwoFloat, lam: Array, at_zero: Array, equation: Equation, debias: bool
) -> Array:
    """The operator where it is known how much of an entry is selected (``ops.scalar.mask.Selected``)."""
    z = lax.stop_gradient(z)
    if debias:
        full = x
    elif equation.phi == HALF_SQUARE and equation.p == 2:
        full = x if equation.zero == "all" else x / (1.0 + lam)
    else:
        v = before_slope(key, z, lam, equation)
        full = _signed(x, equation.slope(v), equation)
        if equation.phi == HALF_SQUARE and equation.zero != "none":
            # What is infinite is kept as it is, and a 0 moves as it does, which no sign of it would tell; of the others
            # `full` is `x`, and knows how it moves with `lam`.
            as_it_is = (lam == 0) & ((x == 0) | ~jnp.isfinite(x))
            full = x if equation.zero == "all" else choose(as_it_is, x, full)
    return _kept(x, z, full, gamma, lam, at_zero, equation, debias)


def share_at_zero(k: Array, nonzero: Array, available: Array, lam: Array, p: float) -> Array:
    """How entries that are 0 move, as a share of how entries that are kept in full do.

    Where ``k`` exceeds the number of others by ``left``, that is for the ``m`` zeros to share. There the operator has a
    derivative along every ``d``. For ``p < 2`` it is that of an entry kept in full; for ``p = 2``, where ``y(a x) = a
    y(x)``, it is ``topk_mag(d, left)``, which is not linear in ``d``. Then any convex combination of Jacobians nearby
    will do (Clarke). Averaged over permutations and signs they are multiples of that of an entry kept in full: ``left /
    m`` where entries differ by much, and ``c = (1 + lam) (left + (m - 1) / lam) / (m + lam left)`` where all are of one
    magnitude. Of those between, 1 is taken, or ``c`` where that is less, for ``left < 1``: exact for ``m = 1``.

    Args:
      k: how much is selected, one value per row.
      nonzero: how many entries that take part are not 0, likewise.
      available: how many take part.
      lam: strength of the relaxation. Where it is 0, which of the zeros are kept is a matter of their order, and the
        share is 0 unless all are.
      p: exponent of the regularisation.
    """
    nonzero, available = nonzero.astype(k.dtype), available.astype(k.dtype)
    left, zeros = k - nonzero, jnp.maximum(available - nonzero, 1.0)
    share = jnp.ones_like(lam)
    if p == 2:
        tight = lam * (1.0 - left) > zeros - 1.0
        strength, rest = choose(tight, lam, 1.0), choose(tight & (left > 0), left, 1.0)
        least = (1.0 + strength) * (rest + (zeros - 1.0) / strength) / (zeros + strength * rest)
        share = choose(tight, least, share)
    return choose((k >= available) | ((left > 0) & (lam > 0)), share, 0.0)


def gain(s: Array, first: Array, lam: Array, equation: Equation) -> Array:
    """Derivative of ``y = z * phi'(gamma)`` in ``z``.

    Of an entry selected in full ``gamma`` moves with ``z``; of the first one, which begins at 0, it does not matter.
    """
    v = before_slope(s, jnp.ones_like(s), lam, equation)
    return choose(first, equation.slope(s), equation.slope(v) / (1.0 + equation.width_slope(v, lam)))


def gain_debiased(s: Array, first: Array, lam: Array, equation: Equation) -> Array:
    """Likewise of ``y = s - (1 - z) * gamma``; for ``p < 2``, where that of the first entry is infinite, as above."""
    v = before_slope(s, jnp.ones_like(s), lam, equation)
    begins = (1.0 + lam) * s if equation.p == 2 else s
    return choose(first, begins, equation.slope(v))


# Cotangents are multiplied by the unit on their way back, and must not underflow either.
_LEAST_UNIT = 2.0**-80
# Entries are at most this large in their units, so that a few of them can be added and multiplied.
_LARGEST = 2.0**100
# The largest unit over `lam`: the least entry that there may be, 1e-30, then has a width of 3e-38, a normal number.
_WIDEST = 2.0**25


class Units(NamedTuple):
    """A row in units of its own.

    Attributes:
      entries: in these units.
      lam: likewise.
      unit: a power of two, by which entries were divided.
    """

    entries: tuple[Array, ...]
    lam: Array
    unit: Array


def in_units(entries: tuple[Array, ...], lam: Array, equation: Equation) -> Units:
    """Entries and ``lam`` of every row in units in which the width does not underflow.

    ``y(a x; a ** (2 - p) lam) = a y(x; lam)`` for ``half_square``: any unit will do. Where entries or width are small,
    in this one the largest entry is about as far above 1 as the width is below, or the other way round. Other ``phi``
    know no units.
    """
    if equation.phi != HALF_SQUARE or equation.zero == "all":
        return Units(entries, lam, jnp.ones_like(lam))
    largest = rows_without_derivative(equation.rows).max(jnp.abs, lax.stop_gradient(entries))
    sensible = (largest > 0) & (largest < jnp.inf)
    size = choose(sensible, largest, 1.0)
    mean = choose(lam > 0, jnp.sqrt(lam) * size ** (0.5 * equation.p), size)
    # However large the largest entry is, the width of one of 1e-30 must not underflow.
    mean = choose(lam > 0, jnp.minimum(mean, lam * _WIDEST), mean)
    unit = jnp.maximum(jnp.clip(mean, _LEAST_UNIT, 1.0), size / _LARGEST)
    unit = lax.stop_gradient(power_of_two(unit))
    scaled = lam if equation.p == 2 else lam * unit ** (equation.p - 2.0)
    return Units(tuple(x * (1.0 / unit) for x in entries), scaled, unit)


def magnitude_from(
    selected: Selected, entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation, debias: bool = False
) -> tuple[Array, ...]:
    """The operator where it is known which entries are selected; in units of ``in_units``, if any."""
    rows, keys = rows_without_derivative(equation.rows), lax.stop_gradient(selected.keys)
    nonzero, available = rows.sum(lambda s: (s > (0 if equation.folded else -jnp.inf), s > -jnp.inf), keys)
    at_zero = share_at_zero(k, nonzero, available, lam, equation.p)
    y = tuple(
        keep(x, s, z, selected.gamma, lam, at_zero, equation, debias)
        for x, s, z in zip(entries, selected.keys, selected.z, strict=True)
    )
    signs = tuple(jnp.sign(x) if equation.phi.even else jnp.ones_like(x) for x in entries)
    return with_slope_in_k(y, signs, selected.keys, selected.z, k, lam, equation, gain_debiased if debias else gain)


def _without_negligible(selected: Selected, k: Array, lam: Array, equation: Equation) -> Selected:
    """The threshold at the largest entry not selected, in rows where ``k`` entries can be selected in full.

    Any from there up to a width below these will do. One that is lower selects so little of others that their sum does
    not tell, but of what is rescaled it is far from little.
    """
    rows = rows_without_derivative(equation.rows)
    pairs = lax.stop_gradient(tuple(zip(selected.keys, selected.z, strict=True)))
    full = rows.sum(lambda pair: pair[1] == 1, pairs).astype(k.dtype)
    least = -rows.max(lambda pair: choose(pair[1] == 1, -pair[0], -jnp.inf), pairs)
    largest = rows.max(lambda pair: choose(pair[1] == 1, 0.0, pair[0]), pairs)
    clear = (full == k) & (least - largest >= equation.width(largest, lam)) & (lam > 0)
    gamma = select(clear, TwoFloat(largest, jnp.zeros_like(largest)), selected.gamma)
    return Selected(selected.keys, gamma, tuple(choose(clear & (z < 1), 0.0, z) for z in selected.z))


def magnitude_of(
    entries: tuple[Array, ...],
    k: Array,
    lam: Array,
    equation: Equation,
    *,
    zero: ZeroLam,
    debias: bool,
    where: tuple[Array, ...] | None = None,
) -> tuple[Array, ...]:
    """The operator on entries laid out as ``equation.rows`` says; ``zero`` tells which ``lam`` are 0."""
    equation = dataclasses.replace(equation, zero=zero)
    given = entries
    entries, lam, unit = in_units(entries, lam, equation)
    selected = select_topk(entries, k, lam, equation, where, Given(given, 1.0 / unit))
    if debias and zero != "all" and equation.p < 2:
        selected = _without_negligible(selected, k, lam, equation)
    return tuple(y * unit for y in magnitude_from(selected, entries, k, lam, equation, debias))
