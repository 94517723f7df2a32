"""Relaxed top-k in magnitude, or of any other ``phi`` whose slope varies, in the layout of the solvers."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..arithmetic import TwoFloat, choose, power_of_two, select
from ..nonlinearities import HALF_SQUARE
from .equation import Equation, active_position, dense, inner, partly, position_jvp, steepness
from .mask import Selected, select_topk, with_slope_in_k
from .rows import rows_without_derivative
from .shrinkage import before_slope
from .threshold import Given


def _signed(x: Array, magnitude: Array, equation: Equation) -> Array:
    return jnp.sign(x) * magnitude if equation.phi.even else magnitude


@functools.partial(jax.custom_jvp, nondiff_argnums=(6, 7))
def _kept(
    x: Array, z: Array, full: Array, gamma: TwoFloat, lam: Array, at_zero: Array, equation: Equation, debias: bool
) -> Array:
    """Returns the operator: ``full`` for a fully kept entry, 0 for most, and a value between for a partly kept one.

    A partly kept entry is ``y = z * phi'(gamma)``, with the sign of ``x`` if ``phi`` is even. Debiasing, for
    ``half_square`` only, adds ``lam * y ** (p - 1) = |x| - gamma``, so that ``y = |x| - (1 - z) * gamma``. ``z`` is a
    constant to differentiation, since its derivative is formed here from ``x``, ``gamma`` and ``lam``. An entry that is
    0 has the derivative of its share ``at_zero``, if that is positive (``share_at_zero``).
    """
    slope = equation.slope(gamma.hi + gamma.lo)
    if debias and equation.zero != "all":
        # This holds also where z underflows: an unselected entry is at most gamma, and is removed entirely.
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
    # At lam = 0 the derivative of a kept entry is its share z, which is below 1 only for the last one.
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
    """Returns the operator from the selected shares ``z`` (``ops.scalar.mask.Selected``)."""
    z = lax.stop_gradient(z)
    if debias:
        full = x
    elif equation.phi == HALF_SQUARE and equation.p == 2:
        full = x if equation.zero == "all" else x / (1.0 + lam)
    else:
        v = before_slope(key, z, lam, equation)
        full = _signed(x, equation.slope(v), equation)
        if equation.phi == HALF_SQUARE and equation.zero != "none":
            # At lam = 0 infinite entries are kept unchanged, and a 0 needs the derivative of `x`, since its sign is 0.
            # For other entries `full` equals `x` and also has the derivative in `lam`.
            unchanged = (lam == 0) & ((x == 0) | ~jnp.isfinite(x))
            full = x if equation.zero == "all" else choose(unchanged, x, full)
    return _kept(x, z, full, gamma, lam, at_zero, equation, debias)


def share_at_zero(k: Array, nonzero: Array, available: Array, lam: Array, p: float) -> Array:
    """Returns the derivative of entries that are 0, as a multiple of the derivative of an entry kept in full.

    If ``k`` exceeds the number of non-zero entries by ``left``, the ``m`` zeros share this rest. The operator then has
    a directional derivative along every ``d``. For ``p < 2`` it is that of an entry kept in full. For ``p = 2``, where
    ``y(a x) = a y(x)``, it is ``topk_mag(d, left)``, which is not linear in ``d``, and an element of Clarke's
    generalised Jacobian (a convex combination of Jacobians nearby) takes its place. Averaged over permutations and
    signs, Jacobians nearby are multiples of that of an entry kept in full: ``left / m`` if the entries differ by much,
    and ``c = (1 + lam) (left + (m - 1) / lam) / (m + lam left)`` if all have one magnitude. The multiple used is 1, or
    ``c`` if that is smaller, which happens for ``left < 1``; it is exact for ``m = 1``. At ``lam = 0`` the order of the
    zeros decides which are kept, and the multiple is 0 unless all are kept.

    Arguments have one value per row: ``available`` counts the entries that take part, ``nonzero`` those that are not 0.
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


def _at_share(s: Array, z: Array, lam: Array, equation: Equation) -> tuple[Array, Array, Array]:
    """Returns ``gamma``, minus its derivative in ``z ** (p - 1)``, and its derivative in ``s``.

    ``s = gamma + lam * (z * phi'(gamma)) ** (p - 1)`` is the equation of an entry selected in full, for another lam.
    """
    strength = lam * (z if equation.p == 2 else choose(z > 0, choose(z > 0, z, 1.0) ** (equation.p - 1.0), 0.0))
    gamma = before_slope(s, jnp.ones_like(s), jnp.broadcast_to(strength, s.shape), equation)
    in_s = 1.0 / (1.0 + equation.width_slope(gamma, strength))
    return gamma, equation.width(gamma, lam) * in_s, in_s


def gain(s: Array, z: Array, lam: Array, equation: Equation) -> Array:
    """Returns the derivative of ``y = z * phi'(gamma)`` in ``z``, with which ``gamma`` moves."""
    gamma, _, in_s = _at_share(s, z, lam, equation)
    return equation.slope(gamma) * in_s


def gain_debiased(s: Array, z: Array, lam: Array, equation: Equation) -> Array:
    """Returns the derivative of ``y = s - (1 - z) * gamma`` in ``z``; where it is infinite, that of ``gain``."""
    gamma, falls, _ = _at_share(s, z, lam, equation)
    if equation.p < 2:
        falls = choose(z > 0, (equation.p - 1.0) * choose(z > 0, z, 1.0) ** (equation.p - 2.0), 0.0) * falls
    return gamma + (1.0 - z) * falls


# Reverse mode multiplies cotangents by the unit, and these must not underflow either.
_LEAST_UNIT = 2.0**-80
# Scaled entries are at most this large, so that sums and products of a few of them do not overflow.
_LARGEST = 2.0**100
# The width of the smallest supported entry is at least this, so that the smallest float32 is a rounding of it.
_SMALLEST, _LEAST_WIDTH = 1e-30, 2.5e-31
# The largest ratio of the unit to `lam` where entries are squared: in a smaller unit squares would overflow.
_WIDEST_OF_SQUARES = 2.0**25


def in_units(
    entries: tuple[Array, ...], lam: Array, equation: Equation, *, squared: bool = False
) -> tuple[tuple[Array, ...], Array, Array]:
    """Returns entries divided by a unit, ``lam`` in that unit, and the unit: a power of two per row.

    In this unit widths do not underflow. For ``half_square``, ``y(a x; a ** (2 - p) lam) = a y(x; lam)`` permits any
    unit. If entries or widths are small, the unit puts 1 about midway, on a logarithmic scale, between the largest
    entry and its width. Other ``phi`` are not invariant, and their entries are left as they are.
    """
    if equation.phi != HALF_SQUARE or equation.zero == "all":
        return entries, lam, jnp.ones_like(lam)
    largest = rows_without_derivative(equation.rows).max(jnp.abs, lax.stop_gradient(entries))
    sensible = (largest > 0) & (largest < jnp.inf)
    size = choose(sensible, largest, 1.0)
    mean = choose(lam > 0, jnp.sqrt(lam) * size ** (0.5 * equation.p), size)
    # The width `lam * s ** (p - 1) / unit` of the smallest entry must have all its digits.
    widest = _WIDEST_OF_SQUARES if squared else _SMALLEST ** (equation.p - 1.0) / _LEAST_WIDTH
    mean = choose(lam > 0, jnp.minimum(mean, lam * widest), mean)
    unit = jnp.maximum(jnp.clip(mean, _LEAST_UNIT, 1.0), size / _LARGEST)
    unit = lax.stop_gradient(power_of_two(unit))
    scaled = lam if equation.p == 2 else lam * unit ** (equation.p - 2.0)
    return tuple(x * (1.0 / unit) for x in entries), scaled, unit


def magnitude_from(
    selected: Selected, entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation, debias: bool = False
) -> tuple[Array, ...]:
    """Returns the operator from what is selected; all arguments are in the units of ``in_units``, if it was used."""
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
    """Returns the selection with the largest unselected entry as threshold, in rows that keep ``k`` entries in full.

    Every threshold from there up to one width below the selected entries solves the equation. A lower threshold selects
    shares of other entries that are negligible in the sum over ``z``, but not after debiasing.
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
    entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation, *, debias: bool, where: Any = None
) -> tuple[Array, ...]:
    """Returns the operator of entries laid out as ``equation.rows`` says."""
    unscaled = entries
    entries, lam, unit = in_units(entries, lam, equation)
    selected = select_topk(entries, k, lam, equation, where, Given(unscaled, 1.0 / unit))
    if debias and equation.zero != "all" and equation.p < 2:
        selected = _without_negligible(selected, k, lam, equation)
    return tuple(y * unit for y in magnitude_from(selected, entries, k, lam, equation, debias))
