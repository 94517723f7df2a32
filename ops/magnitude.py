"""Relaxed top-k in magnitude, and that of every other ``phi`` whose slope varies, in the layout of the solvers."""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from ops.arguments import Vanishing
from ops.equation import Equation, active_position, dense, inner, partly, position, position_dot, profile
from ops.hard import hard_selection
from ops.mask import with_hard_rows
from ops.nonlinearities import HALF_SQUARE
from ops.shrinkage import before_slope
from ops.threshold import pooled_value
from ops.twofloat import TwoFloat


def _signed(x: Array, magnitude: Array, equation: Equation) -> Array:
    return jnp.sign(x) * magnitude if equation.phi.even else magnitude


@functools.partial(jax.custom_jvp, nondiff_argnums=(4, 5))
def _kept(x: Array, full: Array, gamma: TwoFloat, lam: Array, equation: Equation, debias: bool) -> Array:
    """What is left of ``x``: ``full`` of a fully kept entry, 0 of most, and between the two of a partly kept one.

    A partly kept entry is ``y = z * phi'(gamma)``, with the sign of ``x`` if ``phi`` is even. Debiasing, of
    ``half_square`` alone, gives back ``lam * y ** (p - 1) = |x| - gamma``, so that ``y = |x| - (1 - z) * gamma``.
    """
    slope = equation.slope(gamma.hi + gamma.lo)
    t = position(equation.keys(x), gamma, lam, equation)
    z = profile(t, equation.exponent)
    if debias:
        taken = (1.0 - z) * slope
        return x - jnp.clip(x, -taken, taken)  # exactly 0, and exactly x, where they should be
    return jnp.where(t >= 1, full, _signed(x, z * slope, equation))


@functools.partial(_kept.defjvp, symbolic_zeros=True)
def _kept_jvp(equation, debias, primals, tangents):
    x, full, gamma, lam = primals
    x_dot, full_dot, gamma_dot, lam_dot = tangents
    x_dot, full_dot, gamma_dot = dense(x_dot), dense(full_dot), TwoFloat(*map(dense, gamma_dot))
    s, exponent, value = equation.keys(x), equation.exponent, gamma.hi + gamma.lo
    t = active_position(s, gamma, lam, equation)
    t_dot, value_dot = position_dot(t, _signed(x, x_dot, equation), gamma_dot, gamma, lam_dot, lam, equation)
    z_dot = exponent * inner(t, exponent - 1) * t_dot
    slope_dot = equation.curvature(value) * value_dot
    y_dot = equation.slope(value) * z_dot + inner(t, exponent) * slope_dot
    if debias:
        y_dot = y_dot - slope_dot + _signed(x, x_dot, equation)
    whole = position(s, gamma, lam, equation) >= 1
    return (
        _kept(x, full, gamma, lam, equation, debias),
        jnp.where(partly(t), _signed(x, y_dot, equation), jnp.where(whole, full_dot, 0.0)),
    )


def keep(x: Array, gamma: TwoFloat, lam: Array, equation: Equation, debias: bool = False) -> Array:
    """The operator where the value ``gamma`` of the pooled block is known."""
    if debias:
        return _kept(x, x, gamma, lam, equation, debias)
    v = before_slope(equation.keys(x), gamma, lam, equation)
    return _kept(x, _signed(x, equation.slope(v), equation), gamma, lam, equation, debias)


def magnitude_of(
    entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation, *, zero: Vanishing, debias: bool
) -> tuple[Array, ...]:
    """The operator on entries laid out as ``equation.rows`` says; ``zero`` tells which ``lam`` are 0."""

    def soft(lam: Array) -> tuple[Array, ...]:
        gamma = pooled_value(tuple(map(equation.keys, entries)), k, lam, equation)
        return tuple(keep(x, gamma, lam, equation, debias) for x in entries)

    def whole(x: Array) -> Array:
        if equation.phi == HALF_SQUARE:
            return x
        return _signed(x, equation.slope(equation.keys(x)), equation)

    def hard(entries: tuple[Array, ...], k: Array) -> tuple[Array, ...]:
        keys = tuple(map(jnp.abs, entries)) if equation.phi.even else entries
        chosen = hard_selection(keys, k, equation.rows)
        return tuple(jnp.where(z == 0, 0.0, whole(x) * z) for x, z in zip(entries, chosen, strict=True))

    return with_hard_rows(hard, soft, entries, k, lam, zero)
