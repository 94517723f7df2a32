"""Pool adjacent violators (App. B.2), all pools of one size at once.

The paper's algorithm merges one pair of violating blocks after another. Merging all violating pairs of neighbours in
every round is faster, but a block of m entries that grows by its neighbours still takes m rounds (the block of
``w = 1_k`` does). Here halves are merged to wholes, from pairs up to the vector: log2(n) rounds whatever the data, each
of which solves one scalar equation for every pair of segments.
"""

import jax.numpy as jnp
from jax import Array, lax

from ..interface.rowwise import varying_as
from ..scalar.twofloat import TwoFloat
from .merging import Segments, merge
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
    free, no_merges = jnp.zeros(s.shape, bool), jnp.zeros((rows, 1), jnp.int32)
    levels = max(n - 1, 0).bit_length()
    if levels == 0:
        return v, free, no_merges
    padding = (1 << levels) - n
    lowest = float(jnp.finfo(s.dtype).min) / 8  # in order behind everything else, and never pooled

    def pad(value: Array, fill: float) -> Array:
        return jnp.pad(value, ((0, 0), (0, padding)), constant_values=fill)

    v = TwoFloat(pad(v.hi, lowest), pad(v.lo, 0.0))
    s, w, free = pad(s, lowest), pad(w, 0.0), jnp.pad(free, ((0, 0), (0, padding)))
    tilt = jnp.zeros_like(lam)

    def round_of_merges(level: Array, carry: tuple[TwoFloat, Array, Array]) -> tuple[TwoFloat, Array, Array]:
        v, linked, merges = carry
        segments = Segments(s.shape, level, levels)
        v, held = merge(problem, v, s, w, lam, tilt, segments, linked)
        at_middle = segments.middle(held)[0] & segments.exists()
        return v, linked | held, merges + jnp.sum(at_middle, axis=1, keepdims=True, dtype=jnp.int32)

    start = varying_as((v, free, no_merges), (s, w, lam))
    v, linked, merges = lax.fori_loop(0, levels, round_of_merges, start)
    return TwoFloat(v.hi[:, :n], v.lo[:, :n]), linked[:, :n], merges
