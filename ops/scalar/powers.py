"""Powers with the exponent ``1 / (p - 1)`` that p-norm regularisation brings about."""

import sys

import jax
import jax.numpy as jnp
from jax import Array, lax


def dual_exponent(p: float) -> float:
    """``q - 1 = 1 / (p - 1)``, at least 1; an ``int`` where it is a whole number."""
    exponent = 1.0 / (p - 1.0)
    # Two roundings of p, to the nearest number and in what it was computed by, may be all that lies between.
    rounding = 2.0 * sys.float_info.epsilon * exponent**2
    return round(exponent) if abs(exponent - round(exponent)) <= rounding else exponent


def power(t: Array, exponent: float) -> Array:
    """``t ** exponent`` for ``t > 0``, by a few multiplications where the exponent is a small whole number."""
    if exponent == 1:
        return t
    if isinstance(exponent, int) and 0 <= exponent <= 32:
        return lax.integer_pow(t, exponent)
    return t**exponent


def expm1(x: Array) -> Array:
    """``exp(x) - 1`` without cancellation, of functions that every compiler of kernels has."""
    return jnp.tanh(0.5 * x) * (jnp.exp(x) + 1.0)


@jax.custom_jvp
def ratio(t: Array, lam: Array) -> Array:
    """``t / lam``, differentiated without ``1 / lam ** 2``, which over- or underflows long before that does."""
    return t / lam


@ratio.defjvp
def _ratio_jvp(primals, tangents):
    t, lam = primals
    quotient = ratio(t, lam)
    return quotient, (tangents[0] - quotient * tangents[1]) / lam
