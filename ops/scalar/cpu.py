"""Rows as XLA's CPU backend reduces them fast: in vector registers, all that is wanted of a pass in one loop."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap

from .choice import choose
from .kernels.platforms import target
from .rows import Entry, Rows, Summed, Values

# A long row is added up in pieces of at most so many entries, which the cores share: their sums lose less to rounding
# than one running sum of all.
_PIECE = 4096


def _piece(n: int) -> int:
    """Into pieces of which length ``n`` entries are divided: the largest that leaves no rest, if that is not tiny."""
    longest = min(n, _PIECE)
    size = next(size for size in range(longest, 0, -1) if n % size == 0)
    return size if 16 * size >= longest else _PIECE


def _reduced(parts: list[Array], adds: list[bool], first: list[Any]) -> list[Array]:
    """Sums (``adds``) or maxima over the last axis of arrays ``(rows, n)``, from ``first`` on; the axis is kept."""
    count, n = parts[0].shape
    piece = _piece(n)
    if n > piece:
        rest = -n % piece
        if rest:
            parts = [lax.pad(part, one, ((0, 0, 0), (0, rest, 0))) for part, one in zip(parts, first, strict=True)]
        pieces = [part.reshape(-1, piece) for part in parts]
        return _reduced([part.reshape(count, -1) for part in _reduced(pieces, adds, first)], adds, first)

    def step(sofar: list[Array], more: list[Array]) -> list[Array]:
        return [lax.add(a, b) if add else lax.max(a, b) for a, b, add in zip(sofar, more, adds, strict=True)]

    # Without the barrier a value that nobody uses would be left out again, and with it what makes the loop a fast one.
    return lax.optimization_barrier([part[:, None] for part in lax.reduce(parts, first, step, (1,))])


def _order(value: Array) -> Array:
    """Integers in the order of floats: their maxima are taken several times faster."""
    bits = lax.bitcast_convert_type(value, jnp.dtype(f"int{8 * value.dtype.itemsize}"))
    return choose(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


def _ordered(key: Array) -> Array:
    """The floats that these integers stand for."""
    bits = choose(key < 0, key ^ jnp.iinfo(key.dtype).max, key)
    return lax.bitcast_convert_type(bits, jnp.dtype(f"float{8 * key.dtype.itemsize}"))


def _identity(x: Any) -> Any:
    return x


# Entries from which on a pass over them takes longer than to hand parts of it to other cores.
_ENTRIES_WORTH_DIVIDING = 2**16


@dataclasses.dataclass(frozen=True)
class VectorRows(Rows):
    """How one scalar per row is reduced from the entries on a CPU.

    XLA makes a loop in vector registers of a reduction of several values at once, where one of them at most is a float
    that is added up. A reduction of one value it writes out and adds up in windows, and two floats one by one: both
    take several times as long. Reductions of several values have no derivative.

    Attributes:
      keys: what competes, of an entry as it is given; it is not written out.
      divided: whether the passes of a loop are worth dividing over the cores.
    """

    keys: Callable[[Any], Any] = _identity
    divided: bool = True

    def sum(self, function: Callable[[Entry], Summed], entries: tuple[Entry, ...]) -> Summed:
        """See ``Rows``."""
        totals = [self._add_up(function(self.keys(s))) for s in entries]
        total = functools.reduce(functools.partial(jax.tree.map, jnp.add), totals)
        return total if self.axis_name is None else lax.psum(total, self.axis_name)

    def fused(self, values: Values) -> Values:
        """See ``Rows``."""
        return in_one_loop(values)

    def loop_condition(self, unfinished: Array) -> Array:
        """See ``Rows``."""
        return divided_over_cores(unfinished) if self.divided else _on_one_core(unfinished)

    def max(self, function: Callable[[Entry], Array], entries: tuple[Entry, ...]) -> Array:
        """See ``Rows``; of floats."""
        values = [function(self.keys(s)) for s in entries]
        lowest = _order(jnp.array(-jnp.inf, values[0].dtype))
        # The second value is none that anybody wants: of one alone XLA makes a slow loop.
        found = [self._reduce([_order(value), ~_order(value)], [False, False], [lowest, lowest])[0] for value in values]
        best = _ordered(functools.reduce(jnp.maximum, found))
        return best if self.axis_name is None else lax.pmax(best, self.axis_name)

    def extent(self, entries: tuple[Array, ...], floor: Array | float, *, signed: bool) -> tuple[Array, Array, Array]:
        """See ``Rows``."""
        lowest = _order(jnp.array(-jnp.inf, jnp.result_type(entries[0])))

        def of_entry(s: Array) -> list[Array]:
            within = [(s > floor).astype(jnp.int32), _order(s)]
            return [*within, choose(s > -jnp.inf, _order(-s), lowest)] if signed else within

        adds, first = [True, False, False][: 2 + signed], [np.int32(0), lowest, lowest][: 2 + signed]
        found = [self._reduce(of_entry(self.keys(s)), adds, first) for s in entries]
        counts, *extremes = zip(*found, strict=True)
        available, (largest, *negative) = sum(counts), [_ordered(functools.reduce(jnp.maximum, of)) for of in extremes]
        if self.axis_name is not None:
            available = lax.psum(available, self.axis_name)
            largest, *negative = lax.pmax((largest, *negative), self.axis_name)
        return available, -negative[0] if signed else jnp.zeros_like(largest), largest

    def _reduce(self, parts: list[Array], adds: list[bool], first: list[Any]) -> list[Array]:
        if self.axis is None:
            parts = [part.reshape(1, -1) for part in parts]
        found = _reduced(parts, adds, first)
        return [part.reshape(()) for part in found] if self.axis is None else found

    def _add_up(self, value: Any) -> Any:
        parts, tree = jax.tree.flatten(value)
        floats = [index for index, part in enumerate(parts) if part.dtype != bool]
        counts = [index for index, part in enumerate(parts) if part.dtype == bool]
        # A loop for each float, and the counts beside them.
        loops = [[index] for index in floats] or [[]]
        for turn, index in enumerate(counts):
            loops[turn % len(loops)].append(index)
        totals = list(parts)
        for loop in loops:
            operands = [parts[index].astype(jnp.int32) if index in counts else parts[index] for index in loop]
            if len(operands) == 1:
                operands.append((operands[0] == 0).astype(jnp.int32))
            found = self._reduce(operands, [True] * len(operands), [np.zeros((), part.dtype) for part in operands])
            for index, total in zip(loop, found[: len(loop)], strict=True):
                totals[index] = total
        return jax.tree.unflatten(tree, totals)


def in_one_loop(values: Values) -> Values:
    """These arrays of one shape, computed side by side in one loop; without a derivative.

    A loop of XLA's on a CPU has one result. So what several results are made of would be computed, and compiled, once
    for each of them. A reduction is the exception: this one takes the larger of each value and itself.
    """
    arrays, tree = jax.tree.flatten(values)
    last = arrays[0].ndim
    pairs = [lax.broadcast_in_dim(each, (*each.shape, 2), range(last)) for each in arrays]

    def larger(first: list[Array], second: list[Array]) -> list[Array]:
        return list(map(lax.max, first, second))

    found = lax.reduce(pairs, [_lowest(each.dtype) for each in arrays], larger, (last,))
    return jax.tree.unflatten(tree, lax.optimization_barrier(found))  # as in `_reduced`


def _lowest(dtype: Any) -> np.ndarray:
    return np.array(-np.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min, dtype)


def divided_over_cores(unfinished: Array) -> Array:
    """The condition of a loop, unchanged, whose passes a CPU divides over its cores.

    XLA since JAX 0.11.1 takes any loop for a small one, and makes one thread's function of it, unless something in it
    cannot be there: a sort, if only of two numbers (https://github.com/jax-ml/jax/issues/40101).
    """
    if target()[0] != "cpu":
        return unfinished
    number = unfinished.astype(jnp.int32)
    return lax.sort(jnp.stack([number, jnp.ones_like(number)]), dimension=0)[0] > 0


@custom_vmap
def _on_one_core(unfinished: Array) -> Array:
    """The same for few entries, which one core passes over; a batch of them under ``vmap`` is divided."""
    return unfinished


@_on_one_core.def_vmap
def _batch_over_cores(size: int, batched: list[bool], unfinished: Array) -> tuple[Array, bool]:
    del size
    return divided_over_cores(unfinished), batched[0]


def vector_rows(
    rows: Rows, keys: Callable[[Any], Any] = _identity, entries: tuple[Array, ...] | None = None
) -> Rows | None:
    """These rows for the loops of a CPU, if that is where a program being traced is likely to run.

    If the ``entries`` that are passed over are few, one core makes all passes, in one function, which starts no program
    for each of them.
    """
    if target()[0] != "cpu":
        return None
    divided = entries is None or sum(s.size for s in jax.tree.leaves(entries)) >= _ENTRIES_WORTH_DIVIDING
    return VectorRows(rows.axis, rows.axis_name, keys, divided)


def rows_without_derivative(rows: Rows, entries: tuple[Array, ...] | None = None) -> Rows:
    """These rows for what has no derivative, counts and extremes: as suits the device."""
    return vector_rows(rows, entries=entries) or rows


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def summed(parts: tuple[Array, ...], rows: Rows) -> Array:
    """The sum of arrays laid out as ``rows`` says, one per row; differentiable any number of times."""
    return rows_without_derivative(rows).sum(_identity, parts)


@summed.defjvp
def _summed_jvp(rows, primals, tangents):
    return summed(*primals, rows), rows.sum(_identity, tangents[0])
