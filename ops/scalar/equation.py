"""The scalar equation behind the relaxed top-k operators, and its derivative.

With ``w = 1_k`` the isotonic problem of the paper (equation 5) has at most one pooled block, and the whole operator
depends on one unknown per row, the value ``gamma`` of that block:

    z_i(gamma) = clip((s_i - gamma) / width(gamma), 0, 1) ** (1 / (p - 1)),        sum_i z_i(gamma) = k,

where ``width(gamma) = lam * phi'(gamma) ** (p - 1)``: ``lam`` for the mask (``phi(x) = x``), and
``lam * gamma ** (p - 1)`` for the magnitude operator (``phi(x) = x ** 2 / 2``). Here ``s = x``, or ``s = |x|`` for an
even ``phi``. The sum decreases in ``gamma``, and a few passes over the data find its root, without a sort.

An even ``phi`` with a kink at 0, such as ``|x|``, is continued below 0 with its right-hand slope at 0, so that the
equation always has a root. If the root is negative, ``gamma`` is 0 and less than ``k`` is selected.

Shapes: entries come as a tuple of arrays that share one equation per row, so that a pytree (or a vector split over
devices) needs no concatenation. With ``Rows(axis=-1)`` every array is ``(rows, n)`` and one scalar per row is
``(rows, 1)``; with ``Rows(axis=None)`` the arrays have any shape and there is a single row, of shape ``()``.
"""

import dataclasses
import functools
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from ..arithmetic import TwoFloat, choose, dual_exponent, power
from ..interface import ZeroLam, varying_as
from ..nonlinearities import ABS, HALF_SQUARE, IDENTITY, Nonlinearity
from .rows import Rows

Method = Literal["auto", "kernel", "loop"]


@functools.cache
def _has_kink(phi: Nonlinearity) -> bool:
    # The built-in cases are known, because `phi` cannot be evaluated while tracing for devices that are not present.
    if phi in (ABS, HALF_SQUARE) or not phi.even:
        return phi == ABS
    with jax.ensure_compile_time_eval():
        return bool(phi.slope(jnp.zeros(())) > 0)


def _finite(value: Array) -> Array:
    """Returns ``value``, or the largest float where it overflows, so that its product with 0 is 0."""
    return jnp.minimum(value, jnp.finfo(value.dtype).max)


@dataclasses.dataclass(frozen=True)
class Equation:
    """The static part of the scalar equation.

    Attributes:
      p: exponent of the regularisation.
      phi: nonlinearity.
      rows: how rows are laid out and reduced.
      zero: which rows have ``lam = 0``; these select all or nothing of an entry.
      method: whether a kernel that keeps rows on chip solves the equation, a loop of passes, or what suits the device.
    """

    p: float
    phi: Nonlinearity = IDENTITY
    rows: Rows = Rows()
    zero: ZeroLam = "none"
    method: Method = "auto"

    @property
    def exponent(self) -> float:
        """``1 / (p - 1)``."""
        return dual_exponent(self.p)

    @property
    def linear(self) -> bool:
        """True if ``phi'`` is 1 wherever something is selected, as for a mask."""
        return self.phi in (IDENTITY, ABS)

    @property
    def kinked(self) -> bool:
        """True if ``phi`` is even and has a kink at 0, at which ``gamma`` may stop."""
        return _has_kink(self.phi)

    @property
    def folded(self) -> bool:
        """True if ``phi`` is even and smooth, so that entries equal to 0 are never selected and ``gamma > 0``."""
        return self.phi.even and not self.kinked

    def lower(self, dtype: jnp.dtype) -> float:
        """Returns a lower bound of ``gamma`` for ``lam > 0``."""
        limits = jnp.finfo(dtype)
        return float(limits.tiny if self.folded else limits.min)

    def floor(self, lam: Array) -> Array | float:
        """Returns the bound that a key must exceed to be selected: ``-inf``, or 0 for magnitudes with ``lam > 0``."""
        if not self.folded or self.zero == "all":
            return -jnp.inf
        return 0.0 if self.zero == "none" else choose(lam == 0, -jnp.inf, 0.0, lam.dtype)

    def keys(self, x: Array, lam: Array) -> Array:
        """Returns ``s``, the keys by which entries compete; the caller sets ``-inf`` for entries that take no part."""
        return self.tied(self.unsigned(x), lam)

    def unsigned(self, x: Array) -> Array:
        """Returns the keys before infinite ones are tied."""
        return jnp.abs(x) if self.phi.even else x

    def tied(self, s: Array, lam: Array) -> Array:
        """Replaces ``+inf`` by the largest float in relaxed rows, so that infinite entries tie and share ``k``."""
        if self.phi == HALF_SQUARE or self.zero == "all":
            return s
        beyond = s == jnp.inf
        return choose(beyond if self.zero == "none" else beyond & (lam > 0), jnp.finfo(s.dtype).max, s)

    def above(self, s: Array, gamma: TwoFloat) -> Array:
        """Returns ``s - gamma``; infinite keys need not be tied before."""
        first = s - gamma.hi
        if self.phi != HALF_SQUARE:
            first = self.rows.at_most(first, jnp.finfo(s.dtype).max - gamma.hi)
        return first - gamma.lo

    def slope(self, gamma: Array) -> Array:
        """Returns ``phi'(gamma)``, finite, and continued below a kink by its right-hand value at 0."""
        if self.linear or self.phi == HALF_SQUARE:
            return self.phi.slope(gamma)
        return _finite(self.phi.slope(jnp.maximum(gamma, 0.0) if self.kinked else gamma))

    def curvature(self, gamma: Array) -> Array:
        """Returns ``phi''(gamma)``, finite, and 0 below a kink."""
        if self.linear or self.phi == HALF_SQUARE:
            return self.phi.curvature(gamma)
        if self.kinked:
            return choose(gamma > 0, _finite(self.phi.curvature(jnp.maximum(gamma, 0.0))), 0.0)
        return _finite(self.phi.curvature(gamma))

    def width(self, gamma: Array, lam: Array) -> Array:
        """``lam * phi'(gamma) ** (p - 1)``: entries between ``gamma`` and ``gamma + width`` are partly selected."""
        if self.linear:
            return lam
        slope = self.slope(gamma)
        if self.p == 2:
            return lam * slope
        # A slope of 0 (nothing left to select from) has an infinite derivative, but no entry depends on it.
        positive = slope > 0
        return choose(positive, lam * choose(positive, slope, 1.0) ** (self.p - 1.0), 0.0)

    def width_slope(self, gamma: Array, lam: Array) -> Array:
        """Returns the derivative of ``width`` in ``gamma``."""
        if self.linear:
            return jnp.zeros_like(gamma)
        return self.width(gamma, lam) * self.growth(gamma)

    def growth(self, gamma: Array) -> Array:
        """``width' / width``, that is ``(p - 1) * phi'' / phi'``, where ``phi' > 0``; finite."""
        slope = self.slope(gamma)
        positive = slope > 0
        ratio = self.curvature(gamma) / choose(positive, slope, 1.0)
        return choose(positive, _finite((self.p - 1.0) * ratio), 0.0)

    def steepening(self, t: Array, gamma: Array, lam: Array) -> Array:
        """Returns ``-width * dt / dgamma = 1 + (s - gamma) * growth`` on the active set."""
        if self.linear:
            return jnp.ones_like(t)
        return 1.0 + _finite(t * self.width(gamma, lam) * self.growth(gamma))


def position(s: Array, gamma: TwoFloat, lam: Array, equation: Equation) -> Array:
    """Returns ``t = (s - gamma) / width``: at most 0 for unselected entries, at least 1 for fully selected ones."""
    if equation.zero == "all":
        value = gamma.hi + gamma.lo
        return choose(s > value, 1.0, choose(jnp.isnan(value), value, 0.0))
    t = equation.above(s, gamma) * inverse_width(gamma, lam, equation)
    if equation.zero == "none":
        return t
    # At lam = 0 the width is 0 and comparisons replace the position, since the difference may underflow or be
    # inf - inf. A NaN must still mark its row.
    lost = jnp.isnan(s) | jnp.isnan(gamma.hi)
    return choose((lam == 0) & ~lost, (s > gamma.hi).astype(t.dtype), t)


def inverse_width(gamma: TwoFloat, lam: Array, equation: Equation) -> Array:
    """Returns ``1 / width``, finite and positive, so that no position is 0 / 0 or an infinity over infinity."""
    if equation.linear and equation.zero == "none":
        return 1.0 / lam  # finite, since `lam` is at least 1e-32
    limits = jnp.finfo(lam.dtype)
    least, rows = float(limits.tiny), equation.rows
    inverse = 1.0 / rows.at_least(equation.width(gamma.hi + gamma.lo, lam), least)
    inverse = rows.at_least(rows.at_most(inverse, float(limits.max)), least)
    # At lam = 0 any difference between numbers of ordinary size must become at least 1.
    return inverse if equation.zero == "none" else choose(lam == 0, limits.max, inverse)


def partly(t: Array, least: float = 0.0) -> Array:
    """Returns the active set: entries that are selected in part."""
    return (t > least) & (t < 1)


def inner(t: Array, exponent: float) -> Array:
    """Returns ``t ** exponent`` on the active set, 0 off it."""
    active = partly(t)
    return choose(active, power(choose(active, t, 0.5), exponent), 0.0)


def least_position(dtype: jnp.dtype, exponent: float) -> float:
    """Returns the ``t`` below which ``t ** exponent`` is about to leave the normal floats."""
    return (4.0 * float(jnp.finfo(dtype).tiny)) ** (1.0 / exponent)


def active_position(s: Array, gamma: TwoFloat, lam: Array, equation: Equation, *, underflows: bool = False) -> Array:
    """Returns ``t`` on the active set and about 0 off it, so that derivatives of infinite entries are 0 and not NaN.

    With ``underflows``, entries whose selected share underflows to 0 belong to the active set too. Otherwise a row of
    shares that are 0 or 1 in floats has no active entry, and gets its derivative in ``k`` from ``with_slope_in_k``.
    """
    least = 0.0 if underflows else least_position(s.dtype, equation.exponent)
    active = partly(lax.stop_gradient(position(s, gamma, lam, equation)), least)
    return position(choose(active, s, gamma.hi), gamma, lam, equation) * active.astype(s.dtype)


def broadcast_where(entries: Array, scalar: Array) -> Array:
    """Returns a row's scalar where the boolean ``entries`` are true, and 0 elsewhere.

    In reverse mode the transpose then sums a selection of entries instead of a product, which XLA's CPU backend does
    ten times faster.
    """
    # The scalar is typed like the entries before it is broadcast: under `shard_map` the devices then sum one scalar
    # instead of their whole part of a row.
    return choose(entries, varying_as(scalar, entries), 0.0)


def position_jvp(
    t: Array, s_dot: Array, gamma_dot: TwoFloat, gamma: TwoFloat, lam_dot: Array, lam: Array, equation: Equation
) -> tuple[Array, Array]:
    """Returns the tangent of the position ``t`` times ``width``, and the tangent of ``gamma``, both on the active set.

    They follow from ``t * width = s - gamma``, without the derivative of ``1 / width``, which overflows for narrow
    widths.
    """
    value = gamma.hi + gamma.lo
    moved = broadcast_where(partly(t), gamma_dot.hi + gamma_dot.lo)
    away = moved * equation.steepening(t, value, lam)
    if not isinstance(lam_dot, SymbolicZero):
        away = away + t * broadcast_where(partly(t), _finite(equation.width(value, jnp.ones_like(lam))) * lam_dot)
    return s_dot - away, moved


def steepness(t: Array, gain: Array | float, gamma: TwoFloat, lam: Array, equation: Equation) -> Array:
    """Returns ``gain`` times the derivative of ``z`` in the entry, on the active set; finite.

    It is computed as one factor, because the factors of the single steps from an entry to ``z`` under- and overflow.
    """
    share = inner(t, equation.exponent - 1)
    steep = equation.exponent * share * _finite(gain * inverse_width(gamma, lam, equation))
    return choose(share > 0, _finite(steep), 0.0)  # the factors may be taken in another order: 0 times infinity


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def selection(s: Array, gamma: TwoFloat, lam: Array, equation: Equation) -> Array:
    """Returns ``z_i(gamma)``, exactly 0, exactly 1 or strictly between, in the shape of ``s``."""
    t, exponent = position(s, gamma, lam, equation), equation.exponent
    # It is 0 also where the power underflows.
    return choose(t <= least_position(t.dtype, exponent), 0.0, jnp.minimum(power(t, exponent), 1.0))


@functools.partial(selection.defjvp, symbolic_zeros=True)
def _selection_jvp(equation, primals, tangents):
    s, gamma, lam = primals
    s_dot, gamma_dot, lam_dot = tangents
    t = active_position(s, gamma, lam, equation)
    passed, _ = position_jvp(t, dense(s_dot, s), TwoFloat(*map(dense, gamma_dot, gamma)), gamma, lam_dot, lam, equation)
    steep = steepness(t, 1.0, gamma, lam, equation)
    # An entry that is not active does not move, even if its position overflows.
    return selection(s, gamma, lam, equation), choose(steep > 0, steep * passed, 0.0)


def dense(tangent: Array | SymbolicZero, primal: Array) -> Array:
    """Returns the tangent of ``primal`` as an array, even if it is symbolically 0."""

    return jnp.zeros_like(primal) if isinstance(tangent, SymbolicZero) else tangent
