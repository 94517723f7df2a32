"""The scalar equation behind the relaxed top-k operators, and its derivative.

With ``w = 1_k`` the isotonic problem of the paper (equation 5) has at most one pooled block, and the whole operator
reduces to one unknown per row, the value ``gamma`` of that block:

    z_i(gamma) = clip((s_i - gamma) / width(gamma), 0, 1) ** (1 / (p - 1)),        sum_i z_i(gamma) = k,

where ``width(gamma) = lam * phi'(gamma) ** (p - 1)``: ``lam`` for the mask (``phi(x) = x``), and
``lam * gamma ** (p - 1)`` for the magnitude operator (``phi(x) = x ** 2 / 2``, ``s = |x|``). The left side decreases
in ``gamma``. No sort, no pooling, no n-by-n matrix: a few passes over the data.

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

from ops.powers import dual_exponent, power
from ops.rows import Rows
from ops.twofloat import TwoFloat, inherit_sharding

Nonlinearity = Literal["identity", "half_square"]


@dataclasses.dataclass(frozen=True)
class Equation:
    """The static part of the scalar equation: exponent, nonlinearity, and how rows are reduced."""

    p: float
    phi: Nonlinearity = "identity"
    rows: Rows = Rows()

    @property
    def exponent(self) -> float:
        """``1 / (p - 1)``."""
        return dual_exponent(self.p)

    def width(self, gamma: Array, lam: Array) -> Array:
        """``lam * phi'(gamma) ** (p - 1)``: entries between ``gamma`` and ``gamma + width`` are partly selected."""
        if self.phi == "identity":
            return lam + jnp.zeros_like(gamma)
        if self.p == 2:
            return lam * gamma
        # gamma = 0 (nothing left to select from) has an infinite slope, and no entry that could feel it.
        positive = gamma > 0
        return jnp.where(positive, lam * jnp.where(positive, gamma, 1.0) ** (self.p - 1.0), 0.0)

    def width_slope(self, gamma: Array, lam: Array) -> Array:
        """Derivative of ``width`` in ``gamma``."""
        if self.phi == "identity":
            return jnp.zeros_like(gamma)
        if self.p == 2:
            return lam + jnp.zeros_like(gamma)
        positive = gamma > 0
        return jnp.where(positive, lam * (self.p - 1.0) * jnp.where(positive, gamma, 1.0) ** (self.p - 2.0), 0.0)


def position(s: Array, gamma: TwoFloat, lam: Array, equation: Equation) -> Array:
    """``t = (s - gamma) / width``: at most 0 where an entry is not selected, at least 1 where it is fully selected."""
    return ((s - gamma.hi) - gamma.lo) * inverse_width(gamma, lam, equation)


def inverse_width(gamma: TwoFloat, lam: Array, equation: Equation) -> Array:
    """``1 / width``, kept finite: 0 * finite is 0 on the threshold, where 0 / 0 would be NaN."""
    limits = jnp.finfo(lam.dtype)
    return jnp.minimum(1.0 / jnp.maximum(equation.width(gamma.hi + gamma.lo, lam), limits.tiny), limits.max)


def partly(t: Array) -> Array:
    """The active set: entries strictly between unselected and fully selected."""
    return (t > 0) & (t < 1)


def inner(t: Array, exponent: float) -> Array:
    """``t ** exponent`` on the active set, 0 off it."""
    active = partly(t)
    return jnp.where(active, power(jnp.where(active, t, 0.5), exponent), 0.0)


def profile(t: Array, exponent: float) -> Array:
    """``z = clip(t, 0, 1) ** exponent``: how much of an entry is selected."""
    return jnp.where(t >= 1, 1.0, jnp.where(t <= 0, 0.0, power(t, exponent)))


def active_position(s: Array, gamma: TwoFloat, lam: Array, equation: Equation) -> Array:
    """``t`` on the active set and about 0 off it, so that the derivatives of infinite entries are 0 and not NaN."""
    active = partly(lax.stop_gradient(position(s, gamma, lam, equation)))
    return position(jnp.where(active, s, gamma.hi), gamma, lam, equation) * active.astype(s.dtype)


def at(entries: Array, scalar: Array) -> Array:
    """A row's scalar at the entries of a boolean array, 0 at the others.

    Says which entries depend on the scalar. Its transpose, in reverse mode, then sums a selection of entries instead
    of a product, and XLA's CPU backend sums selections ten times faster.
    """
    # Typed like the entries before it is spread over them: under `shard_map` the sum over devices is then that of one
    # scalar, not that of a whole part of the row.
    first = entries[..., :1] if jnp.ndim(scalar) else entries.reshape(-1)[0]
    return jnp.where(entries, inherit_sharding(scalar, first), 0.0)


def position_dot(
    t: Array, s_dot: Array, gamma_dot: TwoFloat, gamma: TwoFloat, lam_dot: Array, lam: Array, equation: Equation
) -> tuple[Array, Array]:
    """Tangents on the active set of ``t`` and of ``gamma``.

    From ``t * width = s - gamma``, without the derivative of ``1 / width``, which overflows for narrow widths.
    """
    value = gamma.hi + gamma.lo
    moved = at(partly(t), gamma_dot.hi + gamma_dot.lo)
    widened = moved * equation.width_slope(value, lam)
    if not isinstance(lam_dot, SymbolicZero):
        widened = widened + at(partly(t), equation.width(value, jnp.ones_like(lam)) * lam_dot)
    return (s_dot - moved - t * widened) * inverse_width(gamma, lam, equation), moved


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def selection(s: Array, gamma: TwoFloat, lam: Array, equation: Equation) -> Array:
    """``z_i(gamma)``: exactly 0, exactly 1, or strictly between; same shape as ``s``."""
    return profile(position(s, gamma, lam, equation), equation.exponent)


@functools.partial(selection.defjvp, symbolic_zeros=True)
def _selection_jvp(equation, primals, tangents):
    s, gamma, lam = primals
    s_dot, gamma_dot, lam_dot = tangents
    t = active_position(s, gamma, lam, equation)
    t_dot, _ = position_dot(t, dense(s_dot), TwoFloat(*map(dense, gamma_dot)), gamma, lam_dot, lam, equation)
    slope = equation.exponent * inner(t, equation.exponent - 1)
    return selection(s, gamma, lam, equation), slope * t_dot


def dense(tangent: Array | SymbolicZero) -> Array:
    """A tangent as an array also where it is known to be 0."""
    return jnp.zeros(tangent.shape, tangent.dtype) if isinstance(tangent, SymbolicZero) else tangent
