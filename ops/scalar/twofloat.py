"""Numbers as unevaluated sums of two floats, and floats ordered by their bits.

A float32 cannot represent ``gamma = 1000.0000123``, yet with ``lam = 1e-4`` the operators need a threshold to that
precision. ``TwoFloat(hi, lo)`` represents it: ``(x - hi) - lo`` is then accurate, because ``x - hi`` is exact
where it matters (Sterbenz' lemma: for ``x`` within a factor two of ``hi``).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from .choice import choose


class TwoFloat(NamedTuple):
    """The number ``hi + lo``, with ``|lo|`` at most half a unit in the last place of ``hi``."""

    hi: Array
    lo: Array


def two_sum(a: Array, b: Array) -> TwoFloat:
    """Returns ``a + b`` without rounding error (Knuth's TwoSum)."""
    hi = a + b
    part = hi - a
    return TwoFloat(hi, (a - (hi - part)) + (b - part))


def shift(a: TwoFloat, delta: Array) -> TwoFloat:
    """Returns ``a + delta``, renormalised; the only rounding error is that of ``a.lo + delta``."""
    return two_sum(a.hi, a.lo + delta)


def difference(a: TwoFloat, b: TwoFloat) -> Array:
    """Returns ``a - b`` as one float."""
    return (a.hi - b.hi) + (a.lo - b.lo)


def select(condition: Array, a: TwoFloat, b: TwoFloat) -> TwoFloat:
    """Returns ``a`` where ``condition`` holds, else ``b``, entrywise."""
    return TwoFloat(choose(condition, a.hi, b.hi), choose(condition, a.lo, b.lo))


def _integer_type(dtype: jnp.dtype) -> jnp.dtype:
    return jnp.dtype(f"int{jnp.finfo(dtype).bits}")


def _flip_negatives(bits: Array) -> Array:
    # The bits of negative floats are in reverse order. Flipping all but the sign bit corrects that; twice undoes it.
    return bits ^ ((bits >> (jnp.iinfo(bits.dtype).bits - 1)) & jnp.iinfo(bits.dtype).max)


def middle(a: Array, b: Array) -> Array:
    """Returns the float that halves the number of floats between ``a < b``; ``a`` or ``b`` if there is none between.

    Bisection on the order of the floats reaches any value in at most 32 steps (64 in double precision), whatever
    its scale.
    """
    itype = _integer_type(a.dtype)
    low = _flip_negatives(lax.bitcast_convert_type(a, itype))
    high = _flip_negatives(lax.bitcast_convert_type(b, itype))
    mean = (low & high) + ((low ^ high) >> 1)  # without overflow
    return lax.bitcast_convert_type(_flip_negatives(mean), a.dtype)


def power_of_two(x: Array) -> Array:
    """Returns the power of two at or below ``x > 0``, clipped so that it and its inverse are normal floats."""
    limits = jnp.finfo(x.dtype)
    exponent = ((1 << (limits.bits - 1 - limits.nmant)) - 1) << limits.nmant
    bits = lax.bitcast_convert_type(jnp.clip(x, 4 * limits.tiny, 0.25 * limits.max), _integer_type(x.dtype))
    return lax.bitcast_convert_type(bits & exponent, x.dtype)
