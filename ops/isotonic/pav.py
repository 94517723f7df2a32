"""Pool adjacent violators (App. B.2), by merging halves level by level.

The paper's algorithm merges one pair of violating blocks after another. Merging all violating pairs of neighbours in
every round is faster, but a block of m entries that grows by its neighbours still takes m rounds (the block of
``w = 1_k`` does). Here halves are merged, from pairs up to the vector, in log2(n) rounds on any data. Each round
solves one scalar equation for every pair of segments.
"""

import jax.numpy as jnp
from jax import Array, lax

from ..interface.rowwise import varying_as
from ..scalar.arithmetic import TwoFloat
from .merging import Segments, bit_reversed, merge
from .problem import Problem, minimisers


def pool_adjacent_violators(problem: Problem, s: Array, w: Array, lam: Array) -> tuple[TwoFloat, Array, Array]:
    """Solves the isotonic problem of each row, in O(n log n) operations and O(n) memory.

    Args:
      problem: exponent and nonlinearity.
      s: entries, shape ``(rows, n)``.
      w: weights, same shape.
      lam: strength of the regularisation, shape ``(rows, 1)``.

    Returns:
      The solution, shape ``(rows, n)``; which neighbours are held together, bool, same shape, entry i to its
      successor; and the number of merges that pooled something, int32, shape ``(rows, 1)``.
    """
    rows, n = s.shape
    v = minimisers(problem, s, w, lam)
    no_merges = jnp.zeros((rows, 1), jnp.int32)
    levels = max(n - 1, 0).bit_length()
    if levels == 0:
        return v, jnp.zeros(s.shape, bool), no_merges
    whole = 1 << levels
    lowest = float(jnp.finfo(s.dtype).min) / 8  # padding: in order after all entries, and never pooled

    def laid_out(value: Array, fill: float) -> Array:
        return bit_reversed(jnp.pad(value, ((0, 0), (0, whole - n)), constant_values=fill))

    v = TwoFloat(laid_out(v.hi, lowest), laid_out(v.lo, 0.0))
    s, w = laid_out(s, lowest), laid_out(w, 0.0)
    tilt = jnp.zeros_like(lam)

    def round_of_merges(level: Array, carry: tuple[TwoFloat, Array, Array]) -> tuple[TwoFloat, Array, Array]:
        v, merged, merges = carry
        segments = Segments(whole, level, levels)
        v, pooled = merge(problem, v, s, w, lam, tilt, segments, merged)
        left, right = segments.middle(pooled)
        at_middle = left & right & segments.exists()
        merged = merged | pooled.astype(merged.dtype) << level
        return v, merged, merges + jnp.sum(at_middle, axis=1, keepdims=True, dtype=jnp.int32)

    start = varying_as((v, jnp.zeros(s.shape, jnp.int32), no_merges), (s, w, lam))
    v, merged, merges = lax.fori_loop(0, levels, round_of_merges, start)
    merged = bit_reversed(merged)[:, :n]
    return TwoFloat(*(bit_reversed(part)[:, :n] for part in v)), _linked(merged), merges


def _linked(merged: Array) -> Array:
    """Returns whether some merge pooled an entry together with its successor.

    Equal values do not imply this: tied entries that were never pooled have derivatives of their own.
    """
    index = jnp.arange(merged.shape[1], dtype=merged.dtype).reshape(1, -1)
    apart = index & ~(index + 1)  # a bit for each level at which a segment ends between the two
    successor = jnp.roll(merged, -1, axis=1)
    return (merged & successor & ~apart != 0) & (index < merged.shape[1] - 1)
