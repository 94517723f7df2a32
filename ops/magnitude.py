"""Relaxed top-k in magnitude of entries in the layout of the solvers."""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from ops.arguments import Vanishing
from ops.equation import Equation, active_position, dense, inner, partly, position, position_dot, profile
from ops.hard import hard_selection
from ops.mask import with_hard_rows
from ops.shrinkage import shrink
from ops.threshold import threshold
from ops.twofloat import TwoFloat


@functools.partial(jax.custom_jvp, nondiff_argnums=(4, 5))
def _kept(x: Array, full: Array, gamma: TwoFloat, lam: Array, equation: Equation, debias: bool) -> Array:
    """What is left of ``x``: ``full`` of a fully kept entry, 0 of most, and between the two of a partly kept one.

    A partly kept entry is ``y = z * phi'(gamma) = z * gamma``, with the sign of ``x``. Debiasing gives back
    ``lam * y ** (p - 1) = |x| - gamma``, so that ``y = |x| - (1 - z) * gamma``.
    """
    value = gamma.hi + gamma.lo
    t = position(jnp.abs(x), gamma, lam, equation)
    z = profile(t, equation.exponent)
    if debias:
        taken = (1.0 - z) * value
        return x - jnp.clip(x, -taken, taken)  # exactly 0, and exactly x, where they should be
    return jnp.where(t >= 1, full, jnp.sign(x) * (z * value))


@functools.partial(_kept.defjvp, symbolic_zeros=True)
def _kept_jvp(equation, debias, primals, tangents):
    x, full, gamma, lam = primals
    x_dot, full_dot, gamma_dot, lam_dot = tangents
    x_dot, full_dot, gamma_dot = dense(x_dot), dense(full_dot), TwoFloat(*map(dense, gamma_dot))
    sign, s, exponent = jnp.sign(x), jnp.abs(x), equation.exponent
    t = active_position(s, gamma, lam, equation)
    t_dot, value_dot = position_dot(t, sign * x_dot, gamma_dot, gamma, lam_dot, lam, equation)
    y_dot = (gamma.hi + gamma.lo) * (exponent * inner(t, exponent - 1) * t_dot) + inner(t, exponent) * value_dot
    if debias:
        y_dot = y_dot - value_dot + sign * x_dot
    whole = position(s, gamma, lam, equation) >= 1
    return (
        _kept(x, full, gamma, lam, equation, debias),
        jnp.where(partly(t), sign * y_dot, jnp.where(whole, full_dot, 0.0)),
    )


def magnitude_of(
    entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation, *, zero: Vanishing, debias: bool
) -> tuple[Array, ...]:
    """Top-k in magnitude of entries laid out as ``equation.rows`` says; ``zero`` tells which ``lam`` are 0."""

    def soft(lam: Array) -> tuple[Array, ...]:
        gamma = threshold(tuple(map(jnp.abs, entries)), k, lam, equation)

        def keep(x: Array) -> Array:
            full = x if debias else jnp.sign(x) * shrink(jnp.abs(x), lam, equation.p)
            return _kept(x, full, gamma, lam, equation, debias)

        return tuple(map(keep, entries))

    def hard(entries: tuple[Array, ...], k: Array) -> tuple[Array, ...]:
        chosen = hard_selection(tuple(map(jnp.abs, entries)), k, equation.rows)
        return tuple(jnp.where(z == 0, 0.0, x * z) for x, z in zip(entries, chosen, strict=True))

    return with_hard_rows(hard, soft, entries, k, lam, zero)
