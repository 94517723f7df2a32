"""Pool adjacent violators (App. B.2), by merging halves level by level.

The paper's algorithm merges one pair of violating blocks after another. Merging all violating pairs of neighbours in
every round is faster, but a block of m entries that grows by its neighbours, like that of ``w = 1_k``, still takes m
rounds. This module merges halves, from pairs up to the whole vector, in log2(n) rounds on any data. Each round solves
one scalar equation for every pair of segments.

If the last value of the left half is below the first of the right half, the solution of the whole has one value
``gamma`` around the middle: on the entries of the left half below ``gamma``, and on those of the right half above it.
``gamma`` is the root of

    sum_{left, v_i < gamma} h_i'(gamma)  +  sum_{right, v_i > gamma} h_i'(gamma)  =  0,

where the first sum increases from 0 and the second one to 0. This is again a scalar equation, which for ``w`` 1 on the
left half and 0 on the right is that of ``w = 1_k``. Merging needs no record of the blocks.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..arithmetic import TwoFloat, choose, difference, select
from ..interface import varying_as
from ..scalar.rootfinding import End, Evaluation, find_root
from .problem import Problem, evaluation, forces, minimisers
from .stack import is_fast, pool_parabolas


def bit_reversed(values: Array) -> Array:
    """Returns rows of ``2 ** levels`` entries in bit-reversed order; applied twice, it restores the order.

    The low and the high half of the bits are reversed separately, around a transposition, which moves whole rows.
    """
    rows, n = values.shape
    low = (n.bit_length() - 1) // 2
    table = values.reshape(rows, n >> low, 1 << low)
    table = table[:, _reversals(n >> low)].swapaxes(1, 2)[:, _reversals(1 << low)]
    return table.reshape(rows, n)


def _reversals(n: int) -> np.ndarray:
    """Returns the numbers ``0, ..., n - 1`` with their bits reversed; ``n`` is a power of two."""
    numbers = np.zeros(1, np.int32)
    while numbers.size < n:
        numbers = np.concatenate([2 * numbers, 2 * numbers + 1])
    return numbers


class Segments:
    """Rows of ``n`` entries cut into segments of ``2 ** (level + 1)``; ``n`` is a multiple of ``2 ** levels``.

    Entries are in bit-reversed order, so the stride between entries of one segment is the number of segments. Segments
    are summed by adding one half of the row to the other, then one quarter to the next, and so on, which vectorises.

    The level may be traced, so that one compiled program serves all levels. Scalars of segments come in arrays
    ``(rows, n / 2)``, the number of segments of the lowest level; higher levels use the first ones.
    """

    def __init__(self, n: int, level: Array | int, levels: int) -> None:
        """Cuts rows of ``n`` entries; ``level`` is in ``range(levels)``."""
        self.n, self.half = n, n // 2
        self.level, self.levels = jnp.asarray(level), levels
        self._count = n >> (self.level + 1)

    def sum(self, *values: Array) -> tuple[Array, ...]:
        """Returns the sums over each segment."""
        sums = jnp.stack([value[:, : self.half] + value[:, self.half :] for value in values])
        others: list[Array] = []
        for level in range(1, self.levels):
            first, second = jnp.split(sums, 2, axis=-1)
            sums, others = choose(self.level >= level, first + second, first), [second, *others]
        return tuple(jnp.concatenate([sums, *others], axis=-1))

    def spread(self, *scalars: Array) -> tuple[Array, ...]:
        """Returns at every entry the scalars of its segment."""
        stacked = jnp.stack(scalars)
        spread = stacked[..., : self.n >> self.levels]
        for level in reversed(range(1, self.levels)):
            end = self.n >> (level + 1)
            others = choose(self.level >= level, spread, stacked[..., end : 2 * end])
            spread = jnp.concatenate([spread, others], axis=-1)
        return tuple(jnp.concatenate([spread, spread], axis=-1))

    def middle(self, values: Array) -> tuple[Array, Array]:
        """Returns the two entries at the middle of each segment; arbitrary values beyond the last segment."""
        return self._beginning_at(values, self.n - 2 * self._count), self._beginning_at(values, self._count)

    def around_middle(self, values: Array) -> tuple[Array, Array]:
        """Returns the neighbours of ``middle`` within their halves; arbitrary values if halves have one entry."""
        before, after = self.half - 2 * self._count, self.half + self._count
        return self._beginning_at(values, before), self._beginning_at(values, after)

    def is_left(self) -> Array:
        """Returns whether an entry is in the left half of its segment, shape ``(1, n)``."""
        index = jnp.arange(self.n).reshape(1, self.n)
        return index < self.half if self.levels == 1 else index & self._count == 0

    def exists(self) -> Array:
        """Returns which scalars belong to a segment, shape ``(1, n / 2)``."""
        return jnp.arange(self.half).reshape(1, self.half) < self._count

    def _beginning_at(self, values: Array, start: Array) -> Array:
        wrapped = jnp.concatenate([values, values[:, : self.half]], axis=1)
        return lax.dynamic_slice_in_dim(wrapped, start, self.half, axis=1)


def merge(
    problem: Problem,
    v: TwoFloat,
    s: Array,
    w: Array,
    lam: Array,
    tilt: Array,
    segments: Segments,
    merged: Array | None = None,
) -> tuple[TwoFloat, Array]:
    """Returns the minimisers of ``sum_i h_i(v_i) + tilt_i * v_i`` over ``v`` decreasing in each segment.

    Arrays are in the order of ``segments``. ``v`` holds the minimisers of both halves. ``merged`` says which merges
    pooled an entry with others, one bit for each lower level, int32; only for a ``tilt`` with one value per row. The
    second result says which entries this merge pools (bool).
    """
    is_left = segments.is_left()
    (low_hi, high_hi), (low_lo, high_lo) = segments.middle(v.hi), segments.middle(v.lo)
    violated = (difference(TwoFloat(high_hi, high_lo), TwoFloat(low_hi, low_lo)) > 0) & segments.exists()
    if merged is not None:
        # Two unpooled entries of equal w and lam that are in order have minimisers in order, up to rounding.
        (low_s, high_s), (low_w, high_w) = segments.middle(s), segments.middle(w)
        (left, right), (before, after) = segments.middle(merged), segments.around_middle(merged)
        alike = ((left & before | right & after) == 0) & (low_w == high_w)
        if lam.shape == s.shape:
            low_lam, high_lam = segments.middle(lam)
            alike = alike & (low_lam == high_lam)
        violated = violated & (~alike | (low_s < high_s))

    def evaluate(scalars: TwoFloat) -> Evaluation:
        gamma = TwoFloat(*segments.spread(*scalars))
        beyond = difference(v, gamma)
        inside = choose(is_left, beyond < 0, beyond > 0)
        terms = forces(problem, gamma, s, w, lam, tilt)
        return evaluation(segments.sum(*(choose(inside, term, 0.0) for term in terms)), ~violated)

    start = 0.5 * low_hi + 0.5 * high_hi
    # The root lies between the two values in the middle, which may round to the same float.
    lower, upper = jnp.nextafter(low_hi, -jnp.inf), jnp.nextafter(high_hi, jnp.inf)
    root = find_root(evaluate, start, End(lower, jnp.inf), End(upper, -jnp.inf), nearer=True).point
    low, high = TwoFloat(low_hi, low_lo), TwoFloat(high_hi, high_lo)
    root = select(difference(root, low) < 0, low, select(difference(root, high) > 0, high, root))
    # Without a violation gamma is NaN, to which all comparisons are false.
    gamma = TwoFloat(*segments.spread(choose(violated, root.hi, jnp.nan), root.lo))
    beyond = difference(v, gamma)
    # One half may have too little weight to move the value of the other in floats; both are pooled nevertheless.
    pooled = choose(is_left, beyond <= 0, beyond >= 0)
    return select(pooled, gamma, v), pooled


def pool_adjacent_violators(problem: Problem, s: Array, w: Array, lam: Array) -> tuple[TwoFloat, Array]:
    """Returns the solution of the isotonic problem of each row, and which neighbours are ``linked``.

    Takes O(n log n) operations, or O(n) on a stack of blocks, and O(n) memory.
    """
    n = s.shape[1]
    v = minimisers(problem, s, w, lam)
    levels = max(n - 1, 0).bit_length()
    if levels == 0:
        return v, jnp.zeros(s.shape, bool)
    if problem.quadratic and is_fast(s.shape):
        hi, lo, linked = pool_parabolas(*v, problem.precision(w, lam))
        return TwoFloat(hi, lo), linked
    size = 1 << levels
    lowest = float(jnp.finfo(s.dtype).min) / 8  # padding: in order after all entries, and never pooled

    def laid_out(value: Array, fill: float) -> Array:
        return bit_reversed(jnp.pad(value, ((0, 0), (0, size - n)), constant_values=fill))

    v = TwoFloat(laid_out(v.hi, lowest), laid_out(v.lo, 0.0))
    tilt = jnp.zeros_like(lam[:, :1])
    lam = laid_out(lam, 1.0) if lam.shape == s.shape else lam
    s, w = laid_out(s, lowest), laid_out(w, 0.0)

    def round_of_merges(level: Array, carry: tuple[TwoFloat, Array]) -> tuple[TwoFloat, Array]:
        v, merged = carry
        segments = Segments(size, level, levels)
        v, pooled = merge(problem, v, s, w, lam, tilt, segments, merged)
        return v, merged | pooled.astype(merged.dtype) << level

    start = varying_as((v, jnp.zeros(s.shape, jnp.int32)), (s, w, lam))
    v, merged = lax.fori_loop(0, levels, round_of_merges, start)
    merged = bit_reversed(merged)[:, :n]
    return TwoFloat(*(bit_reversed(part)[:, :n] for part in v)), _linked(merged)


def _linked(merged: Array) -> Array:
    """Returns whether some merge pooled an entry together with its successor.

    Equal values do not imply this: tied entries that were never pooled have derivatives of their own.
    """
    index = jnp.arange(merged.shape[1], dtype=merged.dtype).reshape(1, -1)
    apart = index & ~(index + 1)  # a bit for each level at which a segment ends between the two
    successor = jnp.roll(merged, -1, axis=1)
    return (merged & successor & ~apart != 0) & (index < merged.shape[1] - 1)
