"""The equation of a fully selected entry, ``y = phi'(s - lam * y ** (p - 1))`` (Proposition 2 with ``z = 1``)."""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from ..arithmetic import TwoFloat, choose, dual_exponent, power
from ..nonlinearities import HALF_SQUARE
from .equation import Equation
from .rootfinding import End, Evaluation, find_root

# From the start below, Newton's method has converged to float64 after this many steps for every p in (1, 2].
_NEWTON_STEPS = 9


def _root_of_y(s: Array, lam: Array, p: float, steps: int = _NEWTON_STEPS) -> Array:
    """Returns ``c = y ** (p - 1)``, the root of ``c ** (1 / (p - 1)) + lam * c = s``."""
    exponent = dual_exponent(p)
    positive = s > 0
    s = choose(positive, s, 1.0)
    # Each term alone must not exceed s, which bounds c from above within a factor two; the function is convex and
    # increasing, so that Newton's method then descends to the root without overshooting.
    c = jnp.minimum(s / lam, s ** (1.0 / exponent))
    for _ in range(steps):
        high = power(c, exponent - 1)
        c = (s + (exponent - 1) * high * c) / (exponent * high + lam)
    return choose(positive, c, 0.0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def shrink(s: Array, lam: Array, p: float) -> Array:
    """Returns the solution ``y`` of ``y + lam * y ** (p - 1) = s``, a fully selected entry for ``phi(x) = x ** 2 / 2``.

    For ``p = 2`` it is ``s / (1 + lam)``. A negative ``s`` is treated as 0.
    """
    if p == 2:
        return jnp.maximum(s, 0.0) / (1.0 + lam)
    c = _root_of_y(s, lam, p)
    # There are two ways to compute y from c, and each is accurate where the other loses digits.
    return choose(lam * c <= 0.5 * s, s - lam * c, power(c, dual_exponent(p)))


def shrink_roughly(s: Array, lam: Array, p: float) -> Array:
    """Returns an approximation of ``shrink(s, lam, p)``, as the start of a search."""
    if p == 2:
        return shrink(s, lam, p)
    return power(_root_of_y(s, lam, p, steps=2), dual_exponent(p))


@shrink.defjvp
def _shrink_jvp(p, primals, tangents):
    s, lam = primals
    s_dot, lam_dot = tangents
    y = shrink(s, lam, p)
    positive = y > 0
    safe = choose(positive, y, 1.0)
    # y' (1 + lam (p - 1) y ** (p - 2)) = s' - lam' y ** (p - 1), times y ** (2 - p), which keeps it finite near 0.
    slope = safe ** (2.0 - p)
    y_dot = (slope * s_dot - safe * lam_dot) / (slope + lam * (p - 1.0))
    return y, choose(positive, y_dot, 0.0)


def before_slope(s: Array, z: Array, lam: Array, equation: Equation) -> Array:
    """Returns ``v`` with ``y = phi'(v)`` for fully selected entries (``z = 1``), and any number for others."""
    if equation.zero == "all":
        return s
    if equation.linear:
        return s - lam
    if equation.phi == HALF_SQUARE:
        return shrink(s, lam, equation.p)
    return unshifted(choose(z > 0, s, 1.0), lam, equation)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def unshifted(s: Array, lam: Array, equation: Equation) -> Array:
    """Returns ``find_unshifted``, with its derivative."""
    return find_unshifted(s, lam, equation)


def find_unshifted(s: Array, lam: Array, equation: Equation) -> Array:
    """Returns the solution ``v`` of ``v + width(v) = s``: a fully selected entry before ``phi'`` is applied.

    This is ``v = s - lam * y ** (p - 1)`` with ``y = phi'(v)``, for any ``phi``. The search is for ``v``, because
    ``phi'`` may overflow during a search. ``s`` is finite, and positive for an even ``phi``.
    """
    lam = jnp.broadcast_to(lam, s.shape)
    eps = jnp.finfo(s.dtype).eps

    def evaluate(v: TwoFloat) -> Evaluation:
        value = v.hi + v.lo
        width, slope = equation.width(value, lam), equation.width_slope(value, lam)
        shift = (s - v.hi) - v.lo
        excess = shift - width
        # A width above s may grow exponentially; Newton's method is then applied to its logarithm.
        beyond = (shift > 0) & (excess < 0)
        ratio = choose(beyond, shift / width, 1.0)
        step = choose(beyond, jnp.log(ratio) / (slope / width + 1.0 / shift), excess / (1.0 + slope))
        return Evaluation(
            excess=excess,
            level=excess,
            step=step,
            trusted=jnp.isfinite(step),
            converged=(width < jnp.inf) & (jnp.abs(excess) <= eps * jnp.maximum(jnp.abs(shift), width)),
            scale=jnp.abs(value),
        )

    ends = End(equation.lower(s.dtype), jnp.inf), End(float(jnp.finfo(s.dtype).max), -jnp.inf)
    root = find_root(evaluate, s, *ends, rows=equation.rows).point
    return root.hi + root.lo


@unshifted.defjvp
def _unshifted_jvp(equation, primals, tangents):
    s, lam = primals
    s_dot, lam_dot = tangents
    v = unshifted(s, lam, equation)
    widened = equation.width(v, jnp.ones_like(s)) * lam_dot
    return v, (s_dot - widened) / (1.0 + equation.width_slope(v, lam))
