"""Powers with the exponent ``1 / (p - 1)`` of p-norm regularisation."""

import sys

import jax
import jax.numpy as jnp
from jax import Array, lax


def dual_exponent(p: float) -> float:
    """Returns ``q - 1 = 1 / (p - 1)``, at least 1; an ``int`` if it is a whole number."""
    exponent = 1.0 / (p - 1.0)
    # The difference from a whole number may come from two roundings of p alone: as a literal, and as a result.
    rounding = 2.0 * sys.float_info.epsilon * exponent**2
    return round(exponent) if abs(exponent - round(exponent)) <= rounding else exponent


def power(t: Array, exponent: float) -> Array:
    """Returns ``t ** exponent`` for ``t > 0``, by a few multiplications if the exponent is a small ``int``."""
    if exponent == 1:
        return t
    if isinstance(exponent, int) and 0 <= exponent <= 32:
        return lax.integer_pow(t, exponent)
    return t**exponent


def expm1(x: Array) -> Array:
    """Returns ``exp(x) - 1`` without cancellation, by functions that every kernel compiler supports."""
    return jnp.tanh(0.5 * x) * (jnp.exp(x) + 1.0)


@jax.custom_jvp
def ratio(t: Array, lam: Array) -> Array:
    """Returns ``t / lam``; its derivative avoids ``1 / lam ** 2``, which over- or underflows sooner."""
    return t / lam


@ratio.defjvp
def _ratio_jvp(primals, tangents):
    t, lam = primals
    quotient = ratio(t, lam)
    return quotient, (tangents[0] - quotient * tangents[1]) / lam
