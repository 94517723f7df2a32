"""Thresholds of all prefixes of a row at once, for ``p = 2``, in O(n log^2 n) time and O(n log n) memory.

A prefix is divided into blocks as its length is into powers of two: 13 = 8 + 4 + 1. Each block begins at a multiple of
its size, so that many prefixes share it, and contains no entry after the end of any of these prefixes: later entries
change no bit of a result. The blocks of each size are sorted once. A pass over the data then takes a few binary
searches for each prefix, because with ``p = 2`` only the number and the sum of entries selected in part matter.

Shapes: a row has ``n`` entries and as many prefixes; blocks come in arrays ``(sizes, n)``, a row for each power of two.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from .arithmetic import TwoFloat, choose, two_product, two_sum
from .equation import Equation, position
from .threshold import Extent, search

_EQUATION = Equation(2.0)


class Blocks(NamedTuple):
    """The entries of a row, sorted within the blocks of each size.

    Attributes:
      keys: the entries, in ascending order.
      order: their places in the row, int32.
      sums: the sum of the finite entries of the block up to each.
    """

    keys: Array
    order: Array
    sums: TwoFloat


def _add(a: TwoFloat, b: TwoFloat) -> TwoFloat:
    total = two_sum(a.hi, b.hi)
    return two_sum(total.hi, total.lo + (a.lo + b.lo))


def _running(add: Callable[..., Any], values: Any, size: Array) -> Any:
    """Returns cumulative sums of the arrays ``values`` within blocks of ``size``; ``add`` adds two of their trees."""

    def combine(a: tuple[Array, Any], b: tuple[Array, Any]) -> tuple[Array, Any]:
        first, sums = b
        both = jax.tree.map(lambda one, total: choose(first, one, total), sums, add(a[1], sums))
        return a[0] | first, both

    first = lax.iota(jnp.int32, jax.tree.leaves(values)[0].size) % size == 0
    return lax.associative_scan(combine, (first, values))[1]


def _sizes(n: int) -> Array:
    return 1 << lax.iota(jnp.int32, n.bit_length())


def _sorted(x: Array) -> Blocks:
    place = lax.iota(jnp.int32, x.size)

    def of_size(size: Array) -> Blocks:
        _, keys, order = lax.sort((place // size, x, place), num_keys=2)
        finite = choose(jnp.abs(keys) < jnp.inf, keys, 0.0)
        return Blocks(keys, order, _running(_add, TwoFloat(finite, jnp.zeros_like(finite)), size))

    return lax.map(of_size, _sizes(x.size))


class _Ranks(NamedTuple):
    """The numbers of unselected and not fully selected entries in each block of a prefix, and the block's start.

    Both numbers are 0 for blocks that the prefix does not have.
    """

    unselected: Array
    not_full: Array
    start: Array


def _ranked(blocks: Blocks, gamma: TwoFloat, lam: Array) -> _Ranks:
    sizes, n = blocks.keys.shape
    length, size = lax.iota(jnp.int32, n)[None] + 1, _sizes(n)[:, None]
    gamma, lam = jax.tree.map(lambda of_prefix: of_prefix[None], (gamma, lam))
    has_block = length & size > 0
    start = length // size * size - size

    def count(below: Callable[[Array], Array]) -> Array:
        def search_step(step: Array, rank: Array) -> Array:
            further = rank + (1 << (sizes - 1 - step))
            place = jnp.clip(start + further - 1, 0, n - 1)
            key = jnp.take_along_axis(blocks.keys, place, axis=1, mode="promise_in_bounds")
            return choose((further <= size) & below(position(key, gamma, lam, _EQUATION)), further, rank)

        found = lax.fori_loop(0, sizes, search_step, jnp.zeros((sizes, n), jnp.int32))
        return choose(has_block, found, 0)

    return _Ranks(count(lambda t: t <= 0), count(lambda t: t < 1), start)


def _between(sums: Array, ranks: _Ranks) -> tuple[Array, Array]:
    """Returns the sums of each block before its entries selected in part, and before those fully selected."""

    def up_to(rank: Array) -> Array:
        place = jnp.maximum(ranks.start + rank - 1, 0)
        return choose(rank > 0, jnp.take_along_axis(sums, place, axis=1, mode="promise_in_bounds"), 0.0)

    return up_to(ranks.unselected), up_to(ranks.not_full)


def _partial(blocks: Blocks, ranks: _Ranks, gamma: TwoFloat, lam: Array) -> tuple[Array, Array]:
    """Returns the number of entries selected in part, and the sum of their shares."""
    number = (ranks.not_full - ranks.unselected).sum(axis=0, dtype=jnp.int32)
    ends = (_between(part, ranks) for part in blocks.sums)
    low, high = (TwoFloat(*pair) for pair in zip(*ends, strict=True))
    block_sums = _add(high, TwoFloat(-low.hi, -low.lo))
    zero = jnp.zeros_like(gamma.hi)
    total, _ = lax.scan(lambda sofar, one: (_add(sofar, one), None), TwoFloat(zero, zero), block_sums)
    count = number.astype(zero.dtype)
    below = two_product(count, gamma.hi)
    rest = _add(total, TwoFloat(-below.hi, -(below.lo + count * gamma.lo)))
    return number, (rest.hi + rest.lo) / lam


@jax.custom_jvp
def prefix_thresholds(x: Array, k: Array, lam: Array) -> TwoFloat:
    """Returns the threshold of the mask of every prefix of a row.

    Args:
      x: entries ``(n,)``. ``-inf`` is absent; from the first NaN or ``+inf`` on, thresholds are NaN.
      k: how much is selected of each prefix, ``(n,)``; at most the number of its entries counts.
      lam: strength of the regularisation, above 0; a scalar, or one per prefix.

    Returns:
      Thresholds ``(n,)``, as those of ``threshold``; ``lo`` carries the derivative.
    """
    lost = lax.cummax((jnp.isnan(x) | (x == jnp.inf)).astype(jnp.int32)) > 0
    x = choose(lost, 0.0, x)
    blocks, present, lam = _sorted(x), x > -jnp.inf, jnp.broadcast_to(lam, x.shape)
    number = jnp.cumsum(present, dtype=jnp.int32).astype(x.dtype)
    smallest, largest = lax.cummin(choose(present, x, jnp.inf)), lax.cummax(x)
    some = number > 0
    size = Extent(number, choose(some, smallest, 0.0), choose(some, largest, 0.0))

    def sums(gamma: TwoFloat) -> tuple[Array, Array, Array]:
        ranks = _ranked(blocks, gamma, lam)
        count, partial = _partial(blocks, ranks, gamma, lam)
        full = lax.iota(jnp.int32, x.size) + 1 - ranks.not_full.sum(axis=0, dtype=jnp.int32)
        return full, choose(jnp.isnan(gamma.hi), jnp.nan, partial), count.astype(x.dtype)

    k = jnp.minimum(k, number)
    start = 0.5 * size.smallest + 0.5 * size.largest - 0.5 * lam
    falls = 4.0 / (size.largest - size.smallest + lam)
    gamma, _ = search(sums, k, lam, _EQUATION, size, start, falls)
    return TwoFloat(choose(lost, jnp.nan, gamma.hi), gamma.lo)


@functools.partial(prefix_thresholds.defjvp, symbolic_zeros=True)
def _prefix_thresholds_jvp(primals, tangents):
    """Applies the implicit function theorem, as ``_threshold_jvp`` in ``threshold.py`` does."""

    x, _, lam = primals
    x_dot, k_dot, lam_dot = tangents
    gamma = prefix_thresholds(*primals)
    blocks, lam = _sorted(choose(jnp.abs(x) < jnp.inf, x, -jnp.inf)), jnp.broadcast_to(lam, x.shape)
    ranks = _ranked(blocks, gamma, lam)
    number, partial = _partial(blocks, ranks, gamma, lam)
    moved = jnp.zeros_like(gamma.hi)
    if not isinstance(x_dot, SymbolicZero):
        moving = jnp.take_along_axis(x_dot[None], blocks.order, axis=1, mode="promise_in_bounds")
        sums = jax.vmap(functools.partial(_running, jnp.add))(moving, _sizes(x.size))
        low, high = _between(sums, ranks)
        moved = moved + (high - low).sum(axis=0)
    if not isinstance(lam_dot, SymbolicZero):
        moved = moved - partial * lam_dot
    if not isinstance(k_dot, SymbolicZero):
        moved = moved - lam * k_dot
    gamma_dot = choose(number > 0, moved / jnp.maximum(number, 1).astype(moved.dtype), 0.0)
    return gamma, TwoFloat(jnp.zeros_like(gamma_dot), gamma_dot)
