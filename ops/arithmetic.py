"""Arithmetic that the solvers share: an entrywise choice, powers, and numbers as unevaluated sums of two floats.

A float32 cannot represent ``gamma = 1000.0000123``, yet with ``lam = 1e-4`` the operators need a threshold to that
precision. ``TwoFloat(hi, lo)`` represents it: ``(x - hi) - lo`` is then accurate, because ``x - hi`` is exact
where it matters (Sterbenz' lemma: for ``x`` within a factor two of ``hi``).
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike


def choose(condition: Array, a: ArrayLike, b: ArrayLike, dtype: Any = None) -> Array:
    """Returns ``jnp.where(condition, a, b)`` in two equations of a program instead of four and a call.

    An operator makes about a hundred choices, and the time to trace, differentiate and compile a program grows with
    its equations. Only for arrays inside ``ops.interface.rowwise``, which carry no sharding.

    Args:
      condition: boolean array.
      a: the values where the condition holds: an array, or a number.
      b: the values elsewhere: an array of the dtype of ``a``, or a number.
      dtype: dtype of the result if both are numbers.
    """
    shape = lax.broadcast_shapes(np.shape(condition), np.shape(a), np.shape(b))  # these may be symbolic
    for value in (a, b):
        dtype = getattr(value, "dtype", dtype)

    def spread(value: Any, dtype: Any = dtype) -> Array:
        if isinstance(value, float | int):
            return lax.full(shape, value, dtype)
        lead = len(shape) - value.ndim
        return value if value.shape == shape else lax.broadcast_in_dim(value, shape, range(lead, len(shape)))

    return lax.select(spread(condition, bool), spread(a), spread(b))


def row_sum(values: Array) -> Array:
    """Returns the sum of each row ``(rows, n)``, ``(rows, 1)``."""
    return jnp.sum(values, axis=-1, keepdims=True)


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
    """Returns ``t / lam``, with a derivative that avoids ``1 / lam ** 2``, which over- or underflows sooner."""
    return t / lam


@ratio.defjvp
def _ratio_jvp(primals, tangents):
    t, lam = primals
    quotient = ratio(t, lam)
    return quotient, (tangents[0] - quotient * tangents[1]) / lam


class TwoFloat(NamedTuple):
    """The number ``hi + lo``, with ``|lo|`` at most half a unit in the last place of ``hi``."""

    hi: Array
    lo: Array


def two_sum(a: Array, b: Array) -> TwoFloat:
    """Returns ``a + b`` without rounding error (Knuth's TwoSum)."""
    hi = a + b
    part = hi - a
    return TwoFloat(hi, (a - (hi - part)) + (b - part))


def two_product(a: Array, b: Array) -> TwoFloat:
    """Returns ``a * b`` without rounding error, unless a product of halves overflows (Dekker's product)."""
    half = float(2 ** (jnp.finfo(a.dtype).nmant // 2 + 1) + 1)

    def halves(value: Array) -> tuple[Array, Array]:
        large = half * value
        upper = large - (large - value)
        return upper, value - upper

    (a_upper, a_lower), (b_upper, b_lower) = halves(a), halves(b)
    product = a * b
    error = ((a_upper * b_upper - product) + a_upper * b_lower + a_lower * b_upper) + a_lower * b_lower
    return TwoFloat(product, error)


def shift(a: TwoFloat, delta: Array) -> TwoFloat:
    """Returns ``a + delta``, whose only rounding error is that of ``a.lo + delta``."""
    return two_sum(a.hi, a.lo + delta)


def difference(a: TwoFloat, b: TwoFloat) -> Array:
    """Returns ``a - b`` as one float."""
    return (a.hi - b.hi) + (a.lo - b.lo)


def select(condition: Array, a: TwoFloat, b: TwoFloat) -> TwoFloat:
    """Returns ``a`` where the condition holds, else ``b``."""
    return TwoFloat(choose(condition, a.hi, b.hi), choose(condition, a.lo, b.lo))


def _flip_negatives(bits: Array) -> Array:
    # The bits of negative floats are in reverse order. Flipping all but the sign bit corrects that; twice undoes it.
    return choose(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


def ordered_integer(value: Array) -> Array:
    """Returns integers in the order of the floats ``value``; neighbouring floats become neighbouring integers."""
    return _flip_negatives(lax.bitcast_convert_type(value, jnp.dtype(f"int{8 * value.dtype.itemsize}")))


def ordered_float(key: Array) -> Array:
    """Returns the floats of which ``key`` is the ``ordered_integer``."""
    return lax.bitcast_convert_type(_flip_negatives(key), jnp.dtype(f"float{8 * key.dtype.itemsize}"))


def middle(a: Array, b: Array) -> Array:
    """Returns the float that halves the number of floats between ``a < b``; ``a`` or ``b`` if there is none between.

    Bisection on the order of the floats reaches any value in at most 32 steps (64 in double precision), whatever
    its scale.
    """
    low, high = ordered_integer(a), ordered_integer(b)
    return ordered_float((low & high) + ((low ^ high) >> 1))  # the mean, without overflow


def power_of_two(x: Array) -> Array:
    """Returns the power of two at or below ``x > 0``, clipped so that it and its inverse are normal floats."""
    limits = jnp.finfo(x.dtype)
    exponent = ((1 << (limits.bits - 1 - limits.nmant)) - 1) << limits.nmant
    bits = lax.bitcast_convert_type(jnp.clip(x, 4 * limits.tiny, 0.25 * limits.max), jnp.dtype(f"int{limits.bits}"))
    return lax.bitcast_convert_type(bits & exponent, x.dtype)
