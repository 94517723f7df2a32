"""Thresholds of all prefixes of a row at once, for ``p = 2``, in O(n log(n)^2) time and O(n log n) memory.

A prefix is divided into blocks as its length is into powers of two: 13 = 8 + 4 + 1. Each block begins at a multiple of
its size, so that many prefixes share it, and contains no entry after the end of any of these prefixes: later entries
change no bit of a result. With ``p = 2`` only the number and the sum of entries selected in part matter. A pass over
the data thus takes the ranks of two numbers in each block of each prefix. They are looked up in the whole row, sorted;
what a block has of that rank, its halves have together, so that a rank descends from size to size without a search.

Shapes: a row has ``n`` entries and as many prefixes; blocks come in arrays ``(sizes, n)``, a row for each power of two,
the largest first.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from .arithmetic import TwoFloat, choose, two_product, two_sum
from .scalar.equation import Equation, position
from .scalar.threshold import Extent, highest, search

_EQUATION = Equation(2.0)


class Blocks(NamedTuple):
    """The entries of a row in ascending order, in the whole row and within the blocks of each size.

    Attributes:
      keys: the entries of the row, ``(n,)``.
      order: the places in the row of the entries in the blocks, int32.
      firsts: the number of entries that lie in the first half of a block, among those up to each in the block of twice
        the size, int32.
      sums: the sum of the finite entries of the block up to each.
    """

    keys: Array
    order: Array
    firsts: Array
    sums: TwoFloat


def _add(a: TwoFloat, b: TwoFloat) -> TwoFloat:
    total = two_sum(a.hi, b.hi)
    return two_sum(total.hi, total.lo + (a.lo + b.lo))


def _running(add: Callable[..., Any], values: Any, power: Array | int, steps: int | None = None) -> Any:
    """Returns cumulative sums of the arrays ``values`` within blocks of ``2**power``; ``add`` adds two of their trees.

    A loop, in whose steps the entries that have been added double, compiles faster than ``lax.associative_scan``. It
    is differentiable if the number of ``steps`` is given: at least ``power``.
    """
    place = lax.iota(jnp.int32, jax.tree.leaves(values)[0].size) & ((1 << power) - 1)

    def double(step: Array, values: Any) -> Any:
        reach = 1 << step
        earlier = jax.tree.map(lambda value: jnp.roll(value, reach), values)
        return jax.tree.map(functools.partial(choose, place >= reach), add(earlier, values), values)

    return lax.fori_loop(0, power if steps is None else steps, double, values)


def _powers(n: int) -> Array:
    """Returns the logarithms of the sizes of blocks."""
    return jnp.arange(n.bit_length() - 1, -1, -1, dtype=jnp.int32)


def _sizes(n: int) -> Array:
    return 1 << _powers(n)


def _sorted(x: Array) -> Blocks:
    place = lax.iota(jnp.int32, x.size)
    keys, order = lax.sort((x, place), num_keys=2)

    def halved(order: Array, power: Array) -> tuple[Array, tuple[Array, Array, TwoFloat]]:
        """Divides blocks of twice the size in halves, in which entries stay in ascending order."""
        size = 1 << power
        first, start = order & size == 0, place & (-2 * size)
        firsts = _running(jnp.add, first.astype(jnp.int32), power + 1)
        target = choose(first, start + firsts - 1, place + size - firsts)
        order = jnp.zeros_like(order).at[target].set(order, unique_indices=True, mode="promise_in_bounds")
        finite = choose(jnp.abs(x) < jnp.inf, x, 0.0)[order]
        return order, (order, firsts, _running(_add, TwoFloat(finite, jnp.zeros_like(finite)), power))

    return Blocks(keys, *lax.scan(halved, order, _powers(x.size))[1])


class _Ranks(NamedTuple):
    """The numbers of unselected and not fully selected entries in each block of a prefix, and the block's start.

    Both numbers are 0 for blocks that the prefix does not have.
    """

    unselected: Array
    not_full: Array
    start: Array


def _ranked(blocks: Blocks, gamma: TwoFloat, lam: Array) -> _Ranks:
    sizes, n = blocks.order.shape
    length = lax.iota(jnp.int32, n) + 1

    def count(bound: Array) -> tuple[Array, Array]:
        """Returns for each block of a prefix how many entries have a position of at most ``bound``, and its start."""

        def search_step(step: Array, rank: Array) -> Array:
            further = rank + (1 << (sizes - 1 - step))
            key = blocks.keys.at[jnp.minimum(further, n) - 1].get(mode="promise_in_bounds")
            return choose((further <= n) & (position(key, gamma, lam, _EQUATION) <= bound), further, rank)

        def descend(rank: Array, blocks_of_size: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            firsts, size = blocks_of_size
            has_block, start = length & size > 0, length & (-2 * size)
            first = _up_to(firsts, start, rank)
            return choose(has_block, rank - first, first), (choose(has_block, first, 0), start)

        rank = lax.fori_loop(0, sizes, search_step, jnp.zeros(n, jnp.int32))
        return lax.scan(descend, rank, (blocks.firsts, _sizes(n)))[1]

    bounds = jnp.stack([jnp.zeros_like(lam), jnp.nextafter(jnp.ones_like(lam), 0.0)])
    (unselected, not_full), start = jax.vmap(count, out_axes=(0, None))(bounds)
    return _Ranks(unselected, not_full, start)


def _up_to(sums: Array, start: Array, rank: Array) -> Array:
    """Returns the entry of ``sums`` at the last of ``rank`` places from ``start`` on, 0 if that is none."""
    place = jnp.maximum(start + rank - 1, 0)
    return choose(rank > 0, jnp.take_along_axis(sums, place, axis=-1, mode="promise_in_bounds"), jnp.zeros_like(sums))


def _between(sums: Array, ranks: _Ranks) -> tuple[Array, Array]:
    """Returns the sums of each block before its entries selected in part, and before those fully selected."""
    return _up_to(sums, ranks.start, ranks.unselected), _up_to(sums, ranks.start, ranks.not_full)


def _partial(blocks: Blocks, ranks: _Ranks, gamma: TwoFloat, lam: Array) -> tuple[Array, Array]:
    """Returns the number of entries selected in part, and the sum of their shares."""
    number = (ranks.not_full - ranks.unselected).sum(axis=0, dtype=jnp.int32)
    ends = (_between(part, ranks) for part in blocks.sums)
    low, high = (TwoFloat(*pair) for pair in zip(*ends, strict=True))
    block_sums = _add(high, TwoFloat(-low.hi, -low.lo))
    zero = jnp.zeros_like(gamma.hi)
    total, _ = lax.scan(lambda sofar, block_sum: (_add(sofar, block_sum), None), TwoFloat(zero, zero), block_sums)
    count = number.astype(zero.dtype)
    below = two_product(count, gamma.hi)
    rest = _add(total, TwoFloat(-below.hi, -(below.lo + count * gamma.lo)))
    return number, (rest.hi + rest.lo) / lam


def prefix_thresholds(x: Array, k: Array, lam: Array) -> TwoFloat:
    """Returns the threshold of the mask of every prefix of a row.

    Args:
      x: entries ``(n,)``. ``-inf`` is absent; from the first NaN or ``+inf`` on, thresholds are NaN.
      k: how much is selected of each prefix, ``(n,)``; at most the number of its entries counts.
      lam: strength of the regularisation, above 0; a scalar, or one per prefix.

    Returns:
      Thresholds ``(n,)``, as those of ``highest``; ``lo`` carries the derivative.
    """
    unknown = jnp.isnan(x) | (x == jnp.inf)
    x, lam = choose(unknown, 0.0, x), jnp.broadcast_to(lam, x.shape)
    fixed = lax.stop_gradient((x, k, lam))
    lost, extent = _extents(unknown, fixed[0])
    blocks = _sorted(fixed[0])
    gamma = _root(blocks, extent, *fixed[1:])
    ranks = _ranked(blocks, gamma, fixed[2])
    gamma = _with_derivatives(x, k, lam, gamma, blocks, ranks)

    size, length = _sizes(x.size)[:, None], lax.iota(jnp.int32, x.size)[None] + 1
    full = (length & size > 0) & (ranks.not_full < size)

    def entry(place: Array) -> Array:
        order = jnp.take_along_axis(blocks.order, place, axis=1, mode="promise_in_bounds")
        return x.at[order].get(mode="promise_in_bounds")

    least = choose(full, entry(choose(full, ranks.start + ranks.not_full, 0)), jnp.inf).min(axis=0)
    some = ranks.unselected > 0
    largest = choose(some, entry(choose(some, ranks.start + ranks.unselected - 1, 0)), -jnp.inf).max(axis=0)
    partly = jnp.any(ranks.not_full > ranks.unselected, axis=0)
    gamma = highest(gamma, lam, jnp.any(full, axis=0), partly, least, largest)
    return TwoFloat(choose(lost, jnp.nan, gamma.hi), choose(lost, 0.0, gamma.lo))


def _extents(unknown: Array, x: Array) -> tuple[Array, Extent]:
    """Returns which prefixes have an ``unknown`` entry, a NaN or ``+inf``, and the extent of each."""

    def join(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
        return a[0] | b[0], a[1] + b[1], jnp.minimum(a[2], b[2]), jnp.maximum(a[3], b[3])

    present = x > -jnp.inf
    each = unknown, present.astype(jnp.int32), choose(present, x, jnp.inf), x
    lost, number, smallest, largest = _running(join, each, x.size.bit_length())
    some = number > 0
    return lost, Extent(number.astype(x.dtype), choose(some, smallest, 0.0), choose(some, largest, 0.0))


def _root(blocks: Blocks, size: Extent, k: Array, lam: Array) -> TwoFloat:
    """Returns a root of the equation of every prefix, of the given extents."""

    def sums(gamma: TwoFloat) -> tuple[Array, Array, Array]:
        ranks = _ranked(blocks, gamma, lam)
        count, partial = _partial(blocks, ranks, gamma, lam)
        full = lax.iota(jnp.int32, k.size) + 1 - ranks.not_full.sum(axis=0, dtype=jnp.int32)
        return full, choose(jnp.isnan(gamma.hi), jnp.nan, partial), count.astype(k.dtype)

    k = jnp.minimum(k, size.available)
    start = 0.5 * size.smallest + 0.5 * size.largest - 0.5 * lam
    falls = 4.0 / (size.largest - size.smallest + lam)
    return search(sums, k, lam, _EQUATION, size, start, falls)[0]


@jax.custom_jvp
def _with_derivatives(x: Array, k: Array, lam: Array, gamma: TwoFloat, blocks: Blocks, ranks: _Ranks) -> TwoFloat:
    """Returns the roots ``gamma`` with their derivatives; ``x`` has no NaN and no ``+inf``."""
    return gamma


@functools.partial(_with_derivatives.defjvp, symbolic_zeros=True)
def _with_derivatives_jvp(primals, tangents):
    """Applies the implicit function theorem, as ``_threshold_jvp`` in ``scalar/threshold.py`` does."""
    x, _, lam, _, blocks, ranks = primals
    x_dot, k_dot, lam_dot, *_ = tangents
    gamma = _with_derivatives(*primals)
    number, partial = _partial(blocks, ranks, gamma, lam)
    moved = jnp.zeros_like(gamma.hi)
    if not isinstance(x_dot, SymbolicZero):
        moving = jnp.take_along_axis(x_dot[None], blocks.order, axis=1, mode="promise_in_bounds")
        running = functools.partial(_running, jnp.add, steps=x.size.bit_length())
        sums = jax.vmap(running)(moving, _powers(x.size))
        low, high = _between(sums, ranks)
        moved = moved + (high - low).sum(axis=0)
    if not isinstance(lam_dot, SymbolicZero):
        moved = moved - partial * lam_dot
    if not isinstance(k_dot, SymbolicZero):
        moved = moved - lam * k_dot
    gamma_dot = choose(number > 0, moved / jnp.maximum(number, 1).astype(moved.dtype), 0.0)
    return gamma, TwoFloat(jnp.zeros_like(gamma_dot), gamma_dot)
