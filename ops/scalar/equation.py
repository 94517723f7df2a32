"""The scalar equation behind the relaxed top-k operators, and its derivative.

With ``w = 1_k`` the isotonic problem of the paper (equation 5) has at most one pooled block, and the whole operator
reduces to one unknown per row, the value ``gamma`` of that block:

    z_i(gamma) = clip((s_i - gamma) / width(gamma), 0, 1) ** (1 / (p - 1)),        sum_i z_i(gamma) = k,

where ``width(gamma) = lam * phi'(gamma) ** (p - 1)``: ``lam`` for the mask (``phi(x) = x``), and
``lam * gamma ** (p - 1)`` for the magnitude operator (``phi(x) = x ** 2 / 2``). Here ``s = x``, or ``s = |x|`` for an
even ``phi``. The left side decreases in ``gamma``. No sort, no pooling, no n-by-n matrix: a few passes over the data.

An even ``phi`` with a kink at 0, such as ``|x|``, is continued below 0 with the slope it has there, so that the
equation always has a root; where that is negative, ``gamma`` comes to rest at 0 and less than ``k`` is selected.

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

from ..interface.arguments import ZeroLam
from ..interface.rowwise import varying_as
from ..nonlinearities import ABS, HALF_SQUARE, IDENTITY, Nonlinearity
from .choice import choose
from .powers import dual_exponent, power
from .rows import Rows
from .twofloat import TwoFloat

Method = Literal["auto", "kernel", "loop"]


@functools.cache
def _has_kink(phi: Nonlinearity) -> bool:
    # Of these it is known: nothing can be computed where a program is traced for devices that are not there.
    if phi in (ABS, HALF_SQUARE) or not phi.even:
        return phi == ABS
    with jax.ensure_compile_time_eval():
        return bool(phi.slope(jnp.zeros(())) > 0)


def _finite(value: Array) -> Array:
    # 0 times what overflows is 0: `phi'` where nothing is selected.
    return jnp.minimum(value, jnp.finfo(value.dtype).max)


@dataclasses.dataclass(frozen=True)
class Equation:
    """The static part of the scalar equation.

    Attributes:
      p: exponent of the regularisation.
      phi: nonlinearity.
      rows: how rows are laid out and reduced.
      zero: which rows have ``lam = 0``, and so select all or nothing of an entry.
      method: whether it is solved in a kernel that keeps rows on chip, by a loop over passes, or as suits the device.
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
        """Whether all that is selected is selected with slope 1, as a mask."""
        return self.phi in (IDENTITY, ABS)

    @property
    def kinked(self) -> bool:
        """Whether ``phi`` is even and has a kink at 0, where ``gamma`` may come to rest."""
        return _has_kink(self.phi)

    @property
    def folded(self) -> bool:
        """Whether ``phi`` is even and smooth, so that entries equal to 0 are never selected and ``gamma > 0``."""
        return self.phi.even and not self.kinked

    def lower(self, dtype: jnp.dtype) -> float:
        """A bound of ``gamma`` from below, where ``lam > 0``."""
        limits = jnp.finfo(dtype)
        return float(limits.tiny if self.folded else limits.min)

    def floor(self, lam: Array) -> Array | float:
        """What an entry has to exceed to be selected at all: all or nothing of it, or it is not 0."""
        if not self.folded or self.zero == "all":
            return -jnp.inf
        return 0.0 if self.zero == "none" else choose(lam == 0, -jnp.inf, 0.0, lam.dtype)

    def keys(self, x: Array, lam: Array) -> Array:
        """``s``, by which entries compete; where they take no part it has to be replaced by ``-inf``."""
        return self.tied(self.unsigned(x), lam)

    def unsigned(self, x: Array) -> Array:
        """By which entries compete before infinite ones are tied."""
        return jnp.abs(x) if self.phi.even else x

    def tied(self, s: Array, lam: Array) -> Array:
        """+inf as the largest number there is: more of them than k have to share, unless they are all or nothing."""
        if self.phi == HALF_SQUARE or self.zero == "all":
            return s
        beyond = s == jnp.inf
        return choose(beyond if self.zero == "none" else beyond & (lam > 0), jnp.finfo(s.dtype).max, s)

    def above(self, s: Array, gamma: TwoFloat) -> Array:
        """``s - gamma``, of entries that need not be tied."""
        first = s - gamma.hi
        if self.phi != HALF_SQUARE:
            first = self.rows.at_most(first, jnp.finfo(s.dtype).max - gamma.hi)
        return first - gamma.lo

    def slope(self, gamma: Array) -> Array:
        """``phi'(gamma)``, continued below a kink as it is there, and finite."""
        if self.linear or self.phi == HALF_SQUARE:
            return self.phi.slope(gamma)
        return _finite(self.phi.slope(jnp.maximum(gamma, 0.0) if self.kinked else gamma))

    def curvature(self, gamma: Array) -> Array:
        """``phi''(gamma)``, likewise."""
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
        # A vanishing slope (nothing left to select from) has an infinite derivative, and no entry that could feel it.
        positive = slope > 0
        return choose(positive, lam * choose(positive, slope, 1.0) ** (self.p - 1.0), 0.0)

    def width_slope(self, gamma: Array, lam: Array) -> Array:
        """Derivative of ``width`` in ``gamma``."""
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
        """How much faster than ``gamma`` the position ``t`` moves, on the active set: ``1 + (s - gamma) * growth``."""
        if self.linear:
            return jnp.ones_like(t)
        return 1.0 + _finite(t * self.width(gamma, lam) * self.growth(gamma))


def position(s: Array, gamma: TwoFloat, lam: Array, equation: Equation) -> Array:
    """``t = (s - gamma) / width``: at most 0 where an entry is not selected, at least 1 where it is fully selected."""
    if equation.zero == "all":
        value = gamma.hi + gamma.lo
        return choose(s > value, 1.0, choose(jnp.isnan(value), value, 0.0))
    t = equation.above(s, gamma) * inverse_width(gamma, lam, equation)
    if equation.zero == "none":
        return t
    # Without a width there is no position: a difference may underflow, and that of two infinities is none. But a NaN
    # has to mark its row.
    lost = jnp.isnan(s) | jnp.isnan(gamma.hi)
    return choose((lam == 0) & ~lost, (s > gamma.hi).astype(t.dtype), t)


def inverse_width(gamma: TwoFloat, lam: Array, equation: Equation) -> Array:
    """``1 / width``, finite and positive: 0 / 0 on the threshold, and an absent entry over inf, would be NaN."""
    limits = jnp.finfo(lam.dtype)
    least, rows = float(limits.tiny), equation.rows
    inverse = 1.0 / rows.at_least(equation.width(gamma.hi + gamma.lo, lam), least)
    inverse = rows.at_least(rows.at_most(inverse, float(limits.max)), least)
    # Where lam is 0, any difference between numbers of sensible size has to become at least 1.
    return inverse if equation.zero == "none" else choose(lam == 0, limits.max, inverse)


def partly(t: Array, least: float = 0.0) -> Array:
    """The active set: entries strictly between unselected and fully selected."""
    return (t > least) & (t < 1)


def inner(t: Array, exponent: float) -> Array:
    """``t ** exponent`` on the active set, 0 off it."""
    active = partly(t)
    return choose(active, power(choose(active, t, 0.5), exponent), 0.0)


def profile(t: Array, exponent: float) -> Array:
    """``z = clip(t, 0, 1) ** exponent``: how much of an entry is selected; 0, where that would underflow."""
    return choose(t >= 1, 1.0, choose(t <= least_position(t.dtype, exponent), 0.0, power(t, exponent)))


def least_position(dtype: jnp.dtype, exponent: float) -> float:
    """Where ``t ** exponent`` is hardly a normal number any more."""
    return (4.0 * float(jnp.finfo(dtype).tiny)) ** (1.0 / exponent)


def active_position(s: Array, gamma: TwoFloat, lam: Array, equation: Equation, *, underflows: bool = False) -> Array:
    """``t`` on the active set and about 0 off it, so that the derivatives of infinite entries are 0 and not NaN.

    With ``underflows`` entries of which so little is selected that it is 0 belong to it, too. Without, a row that
    selects all or nothing of what can be told has no active entry, and the derivative in ``k`` of such rows.
    """
    least = 0.0 if underflows else least_position(s.dtype, equation.exponent)
    active = partly(lax.stop_gradient(position(s, gamma, lam, equation)), least)
    return position(choose(active, s, gamma.hi), gamma, lam, equation) * active.astype(s.dtype)


def broadcast_where(entries: Array, scalar: Array) -> Array:
    """A row's scalar at the entries of a boolean array, 0 at the others.

    Says which entries depend on the scalar. Its transpose, in reverse mode, then sums a selection of entries instead
    of a product, and XLA's CPU backend sums selections ten times faster.
    """
    # Typed like the entries before it is spread over them: under `shard_map` the sum over devices is then that of one
    # scalar, not that of a whole part of the row.
    return choose(entries, varying_as(scalar, entries), 0.0)


def position_jvp(
    t: Array, s_dot: Array, gamma_dot: TwoFloat, gamma: TwoFloat, lam_dot: Array, lam: Array, equation: Equation
) -> tuple[Array, Array]:
    """How far entries move past their position, the tangent of ``t`` times ``width``, and the tangent of ``gamma``.

    Both on the active set. From ``t * width = s - gamma``, without the derivative of ``1 / width``, which overflows for
    narrow widths.
    """
    value = gamma.hi + gamma.lo
    moved = broadcast_where(partly(t), gamma_dot.hi + gamma_dot.lo)
    away = moved * equation.steepening(t, value, lam)
    if not isinstance(lam_dot, SymbolicZero):
        away = away + t * broadcast_where(partly(t), _finite(equation.width(value, jnp.ones_like(lam))) * lam_dot)
    return s_dot - away, moved


def steepness(t: Array, gain: Array | float, gamma: TwoFloat, lam: Array, equation: Equation) -> Array:
    """``gain`` times the derivative of ``z`` in the entry, on the active set; finite.

    One factor, not one for each step on the way from an entry to ``z``, which by themselves under- and overflow.
    """
    share = inner(t, equation.exponent - 1)
    steep = equation.exponent * share * _finite(gain * inverse_width(gamma, lam, equation))
    return choose(share > 0, _finite(steep), 0.0)  # the factors may be taken in another order: 0 times infinity


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def selection(s: Array, gamma: TwoFloat, lam: Array, equation: Equation) -> Array:
    """``z_i(gamma)``: exactly 0, exactly 1, or strictly between; same shape as ``s``."""
    return profile(position(s, gamma, lam, equation), equation.exponent)


@functools.partial(selection.defjvp, symbolic_zeros=True)
def _selection_jvp(equation, primals, tangents):
    s, gamma, lam = primals
    s_dot, gamma_dot, lam_dot = tangents
    t = active_position(s, gamma, lam, equation)
    passed, _ = position_jvp(t, dense(s_dot, s), TwoFloat(*map(dense, gamma_dot, gamma)), gamma, lam_dot, lam, equation)
    steep = steepness(t, 1.0, gamma, lam, equation)
    # What is not selected in part does not move, even where its position would overflow.
    return selection(s, gamma, lam, equation), choose(steep > 0, steep * passed, 0.0)


def dense(tangent: Array | SymbolicZero, primal: Array) -> Array:
    """The tangent of ``primal`` as an array also where it is known to be 0."""
    return jnp.zeros_like(primal) if isinstance(tangent, SymbolicZero) else tangent
