"""Numbers carried as an unevaluated sum of two floats, and the order of floats seen as integers.

A threshold such as ``gamma = 1000.0000123`` does not fit a float32, yet with ``lam = 1e-4`` the operators need
it to that precision. ``TwoFloat(hi, lo)`` holds it: ``(x - hi) - lo`` is then accurate, because ``x - hi`` is exact
where it matters (Sterbenz' lemma: for ``x`` within a factor two of ``hi``).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax


class TwoFloat(NamedTuple):
    """The number ``hi + lo``, with ``|lo|`` at most half a unit in the last place of ``hi``."""

    hi: Array
    lo: Array


def shift(a: TwoFloat, delta: Array) -> TwoFloat:
    """``a + delta``, renormalised without rounding error (Knuth's TwoSum)."""
    small = a.lo + delta
    hi = a.hi + small
    part = hi - a.hi
    lo = (a.hi - (hi - part)) + (small - part)
    return TwoFloat(hi, lo)


def difference(a: TwoFloat, b: TwoFloat) -> Array:
    """``a - b`` as one float."""
    return (a.hi - b.hi) + (a.lo - b.lo)


def select(condition: Array, a: TwoFloat, b: TwoFloat) -> TwoFloat:
    """Entrywise ``a`` where ``condition`` holds, else ``b``."""
    return TwoFloat(jnp.where(condition, a.hi, b.hi), jnp.where(condition, a.lo, b.lo))


def _integer_type(dtype: jnp.dtype) -> jnp.dtype:
    return jnp.dtype(f"int{jnp.finfo(dtype).bits}")


def _flip_negatives(bits: Array) -> Array:
    # The bits of negative floats order the wrong way round; flipping all but the sign mends that, and undoes itself.
    return jnp.where(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


def middle(a: TwoFloat, b: TwoFloat) -> TwoFloat:
    """A number between ``a < b`` that halves the count of floats between them.

    Bisection on the order of the floats reaches any value in at most 32 steps (64 in double precision), whatever
    its scale. Once ``a.hi`` and ``b.hi`` are neighbours, it is the arithmetic mean that splits the gap.
    """
    itype = _integer_type(a.hi.dtype)
    low = _flip_negatives(lax.bitcast_convert_type(a.hi, itype))
    high = _flip_negatives(lax.bitcast_convert_type(b.hi, itype))
    mid = (low & high) + ((low ^ high) >> 1)  # the mean, without overflow
    by_order = lax.bitcast_convert_type(_flip_negatives(mid), a.hi.dtype)
    by_value = shift(a, 0.5 * difference(b, a))
    return select((mid > low) & (mid < high), TwoFloat(by_order, jnp.zeros_like(by_order)), by_value)


def inherit_sharding(value: Array, reference: Array) -> Array:
    """``value``, typed as varying over the mesh axes ``reference`` varies over; both of one shape.

    Inside ``shard_map`` a loop's carry must have the same type on entry and on exit. The compiler drops the choice.
    """
    return jnp.where(reference == reference, value, value)
