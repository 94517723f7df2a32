"""Reductions of entries to one scalar per row: over one array or several, on one device or many.

XLA's CPU backend vectorises only some forms of a reduction; ``VectorRows`` uses these.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap

from ..arithmetic import choose, ordered_float, ordered_integer
from ..interface import target, varying_as

Entry = TypeVar("Entry")  # an array, or several arrays of one shape
Summed = TypeVar("Summed")  # an array, or a tuple of them
Values = TypeVar("Values")  # a tree of arrays


_AHEAD = 3  # of the 3 to 8 passes that typical rows take


@dataclasses.dataclass(frozen=True)
class Rows:
    """The layout of rows, and their reduction to one scalar per row.

    Attributes:
      axis: -1 for arrays of shape ``(rows, n)``, ``None`` where all entries of all arrays form one row.
      axis_name: mesh axis (or axes) over which rows are split, as in ``jax.lax.psum``; ``None`` if they are not.
    """

    axis: int | None = -1
    axis_name: str | tuple[str, ...] | None = None

    def sum(self, function: Callable[[Entry], Summed], entries: tuple[Entry, ...]) -> Summed:
        """Returns the sums of the results of ``function`` over each row; booleans are counted exactly, in int32."""
        # Floats are added several times faster than integers on a CPU, and hold every integer up to this bound.
        size = sum(s.size if self.axis is None else s.shape[-1] for s in jax.tree.leaves(entries))
        shards = 1 if self.axis_name is None else lax.axis_size(self.axis_name)
        counted = jnp.float32 if size * shards <= 2**24 else jnp.int32

        def over_entries(value: Array) -> Array:
            terms = value.astype(counted) if value.dtype == bool else value
            total = jnp.sum(terms, axis=self.axis, keepdims=self.axis is not None)
            return total.astype(jnp.int32) if value.dtype == bool else total

        of_array = shared(lambda s: jax.tree.map(over_entries, function(s)), entries)
        total = functools.reduce(functools.partial(jax.tree.map, jnp.add), [of_array(s) for s in entries])
        return total if self.axis_name is None else lax.psum(total, self.axis_name)

    def at_least(self, value: Array, bound: float) -> Array:
        """Returns the larger of both, or NaN if ``value`` is NaN."""
        return jnp.maximum(value, bound)

    def at_most(self, value: Array, bound: Array | float) -> Array:
        """Returns the smaller of both, or NaN if ``value`` is NaN."""
        return jnp.minimum(value, bound)

    def fused(self, values: Values) -> Values:
        """Returns the arrays, one value per row each, computed in the way that is fastest on the device."""
        return values

    def loop_condition(self, unfinished: Array) -> Array:
        """Returns the condition of a loop of passes, in the form in which the device runs the loop fastest."""
        return unfinished

    def compact(self, function: Callable[..., Values], start: Values, *arguments: Any) -> Values:
        """Returns ``function(*arguments)``, computed in the way that is fastest on the device; without a derivative.

        ``start`` has arrays of the shapes and dtypes of its results.
        """
        return function(*arguments)

    def ahead(self, entries: tuple[Any, ...]) -> int:
        """Returns how many passes of a search come before its loop (loop peeling).

        On a GPU each round of a loop waits for the host. For many arrays the program would take long to compile.
        """
        return _AHEAD if len(entries) == 1 and target()[0] == "cuda" else 0

    def max(self, function: Callable[[Entry], Array], entries: tuple[Entry, ...]) -> Array:
        """Returns the maximum of ``function`` over each row; it may miss NaNs, as XLA's CPU backend does."""
        of_array = shared(lambda s: jnp.max(function(s), axis=self.axis, keepdims=self.axis is not None), entries)
        best = functools.reduce(jnp.maximum, [of_array(s) for s in entries])
        return best if self.axis_name is None else lax.pmax(best, self.axis_name)

    def extent(self, entries: tuple[Array, ...], floor: Array | float, *, signed: bool) -> tuple[Array, Array, Array]:
        """Returns, per row, how many entries exceed ``floor`` (int32), the smallest above ``-inf``, and the largest.

        A row without such entries has the extremes ``inf`` and ``-inf``. Unless ``signed``, entries are not negative,
        and the smallest is given as 0.
        """
        available = self.sum(lambda s: s > floor, entries)
        largest = self.max(lambda s: s, entries)
        if not signed:
            return available, jnp.zeros_like(largest), largest
        return available, -self.max(lambda s: choose(s > -jnp.inf, -s, -jnp.inf), entries), largest


# A long row is summed in pieces of at most this many entries. The cores share the pieces, and the rounding error is
# smaller than that of one running sum.
_PIECE = 4096


def _piece(n: int) -> int:
    """Returns the length of the pieces: the largest divisor of ``n`` up to ``_PIECE``, else ``_PIECE``."""
    longest = min(n, _PIECE)
    size = next(size for size in range(longest, 0, -1) if n % size == 0)
    return size if 16 * size >= longest else _PIECE


def _reduced(parts: list[Array], adds: list[bool], first: list[Any]) -> list[Array]:
    """Returns sums (``adds``) or maxima over the last axis of arrays; they start at ``first``."""
    *lead, n = parts[0].shape
    piece = _piece(n)
    if n > piece:
        edges = (*len(lead) * [(0, 0, 0)], (0, -n % piece, 0))
        if n % piece:
            parts = [lax.pad(part, fill, edges) for part, fill in zip(parts, first, strict=True)]
        # Pieces have an axis of their own, along which a compiler may have divided them over devices.
        pieces = [part.reshape(*lead, -1, piece) for part in parts]
        return _reduced(_reduced(pieces, adds, first), adds, first)

    def step(sofar: list[Array], more: list[Array]) -> list[Array]:
        return [lax.add(a, b) if add else lax.max(a, b) for a, b, add in zip(sofar, more, adds, strict=True)]

    # Without the barrier XLA would drop unused values, and with them the form that makes the loop fast.
    return lax.optimization_barrier(lax.reduce(parts, first, step, (len(lead),)))


def _identity(x: Any) -> Any:
    return x


# From this number of entries on, dividing a pass over the cores takes less time than the pass on one core.
ENTRIES_WORTH_DIVIDING = 2**16


@dataclasses.dataclass(frozen=True)
class VectorRows(Rows):
    """Reductions of one scalar per row from the entries, on a CPU.

    XLA vectorises a reduction of several values at once if at most one of them is a sum of floats. It materialises a
    single value and sums it in windows, and takes two sums of floats entry by entry: both are several times slower.
    Reductions of several values have no derivative.

    Attributes:
      keys: maps an entry as given to the key by which it competes; the keys are never materialised.
      divided: whether the passes of a loop are divided over the cores.
    """

    keys: Callable[[Any], Any] = _identity
    divided: bool = True

    def sum(self, function: Callable[[Entry], Summed], entries: tuple[Entry, ...]) -> Summed:
        """See ``Rows``."""
        of_array = shared(lambda s: self._add_up(function(self.keys(s))), entries)
        totals = [of_array(s) for s in entries]
        total = functools.reduce(functools.partial(jax.tree.map, jnp.add), totals)
        return total if self.axis_name is None else lax.psum(total, self.axis_name)

    def fused(self, values: Values) -> Values:
        """See ``Rows``."""
        return in_one_loop(values)

    def compact(self, function: Callable[..., Values], start: Values, *arguments: Any) -> Values:
        """See ``Rows``."""
        # Collectives in a loop would be waited for by one thread.
        large = self.divided or self.axis_name is not None
        return function(*arguments) if large else in_one_function(function, start, *arguments)

    def loop_condition(self, unfinished: Array) -> Array:
        """See ``Rows``."""
        return divided_over_cores(unfinished) if self.divided else _on_one_core(unfinished)

    def max(self, function: Callable[[Entry], Array], entries: tuple[Entry, ...]) -> Array:
        """See ``Rows``; for floats only."""

        # XLA computes the maximum of integers several times faster than that of floats.
        def of_entry(s: Entry) -> Array:
            value = function(self.keys(s))
            lowest, key = ordered_integer(jnp.array(-jnp.inf, value.dtype)), ordered_integer(value)
            # The second value is unused, since XLA makes a slow loop for a single value.
            return self._reduce([key, ~key], [False, False], [lowest, lowest])[0]

        maxima = list(map(shared(of_entry, entries), entries))
        best = ordered_float(functools.reduce(jnp.maximum, maxima))
        return best if self.axis_name is None else lax.pmax(best, self.axis_name)

    def extent(self, entries: tuple[Array, ...], floor: Array | float, *, signed: bool) -> tuple[Array, Array, Array]:
        """See ``Rows``."""
        lowest = ordered_integer(jnp.array(-jnp.inf, jnp.result_type(entries[0])))

        def of_entry(s: Array) -> list[Array]:
            key = ordered_integer(s)
            within = [(s > floor).astype(jnp.int32), key]
            return [*within, choose(s > -jnp.inf, ~key, lowest)] if signed else within  # `~key` is that of `-s`

        adds, first = [True, False, False][: 2 + signed], [np.int32(0), lowest, lowest][: 2 + signed]
        of_array = shared(lambda s: self._reduce(of_entry(self.keys(s)), adds, first), entries)
        reductions = [of_array(s) for s in entries]
        counts, *extremes = zip(*reductions, strict=True)
        available = sum(counts)
        largest, *negative = [ordered_float(functools.reduce(jnp.maximum, keys)) for keys in extremes]

        if self.axis_name is not None:
            available = lax.psum(available, self.axis_name)
            largest, *negative = lax.pmax((largest, *negative), self.axis_name)
        return available, -negative[0] if signed else jnp.zeros_like(largest), largest

    def _reduce(self, parts: list[Array], adds: list[bool], first: list[Any]) -> list[Array]:
        if self.axis is None:
            parts = [part.reshape(1, -1) for part in parts]
        (count, n), devices = parts[0].shape, jax.device_count()
        if divided := devices > 1 and n > _PIECE and n % devices == 0:
            # The rows may be divided over the devices. XLA reduces their results without a gather if they are reduced
            # one value at a time.
            parts = [part.reshape(count, devices, n // devices) for part in parts]
        values = _reduced(parts, adds, first)
        if divided:
            steps = [lax.add if add else lax.max for add in adds]
            values = [lax.reduce(part, init, step, (1,)) for part, init, step in zip(values, first, steps, strict=True)]
        return [part.reshape(()) if self.axis is None else part[:, None] for part in values]

    def _add_up(self, value: Any) -> Any:
        parts, tree = jax.tree.flatten(value)
        floats = [index for index, part in enumerate(parts) if part.dtype != bool]
        counts = [index for index, part in enumerate(parts) if part.dtype == bool]
        # One loop for each sum of floats; the counts are spread over these loops.
        loops = [[index] for index in floats] or [[]]
        for turn, index in enumerate(counts):
            loops[turn % len(loops)].append(index)
        totals = list(parts)
        for loop in loops:
            operands = [parts[index].astype(jnp.int32) if index in counts else parts[index] for index in loop]
            if len(operands) == 1:
                operands.append((operands[0] == 0).astype(jnp.int32))
            sums = self._reduce(operands, [True] * len(operands), [np.zeros((), part.dtype) for part in operands])
            for index, total in zip(loop, sums[: len(loop)], strict=True):
                totals[index] = total
        return jax.tree.unflatten(tree, totals)


def in_one_loop(values: Values) -> Values:
    """Returns the arrays, all of one shape, computed in one loop; without a derivative.

    On a CPU a loop of XLA has one result, and values that several results need would be computed and compiled for each
    of them. A reduction may have several results: this one takes the maximum of each value and itself.
    """
    arrays, tree = jax.tree.flatten(values)
    last = arrays[0].ndim
    pairs = [lax.broadcast_in_dim(each, (*each.shape, 2), range(last)) for each in arrays]

    def larger(first: list[Array], second: list[Array]) -> list[Array]:
        return list(map(lax.max, first, second))

    lowest = [-np.inf if jnp.issubdtype(each.dtype, jnp.floating) else jnp.iinfo(each.dtype).min for each in arrays]
    first = [np.array(low, each.dtype) for low, each in zip(lowest, arrays, strict=True)]
    maxima = lax.reduce(pairs, first, larger, (last,))
    return jax.tree.unflatten(tree, lax.optimization_barrier(maxima))  # as in `_reduced`


def divided_over_cores(unfinished: Array) -> Array:
    """Returns the condition of a loop unchanged, in a form that lets a CPU divide the passes over its cores.

    Since JAX 0.11.1 XLA compiles a loop to a function for one thread, unless the loop contains an operation that cannot
    be part of it, like a sort of two numbers (https://github.com/jax-ml/jax/issues/40101).
    """
    if target()[0] != "cpu":
        return unfinished
    number = unfinished.astype(jnp.int32)
    return lax.sort(jnp.stack([number, jnp.ones_like(number)]), dimension=0)[0] > 0


@custom_vmap
def _on_one_core(unfinished: Array) -> Array:
    """Returns the condition of a loop over few entries unchanged; under ``vmap`` a batch uses all cores."""

    return unfinished


@_on_one_core.def_vmap
def _batch_over_cores(size: int, batched: list[bool], unfinished: Array) -> tuple[Array, bool]:
    del size
    return divided_over_cores(unfinished), batched[0]


def vector_rows(rows: Rows, entries: tuple[Array, ...] | None = None) -> VectorRows | None:
    """Returns ``rows`` for the loops of a CPU, or ``None`` if the program being traced is not likely to run on one.

    For few ``entries`` one core makes all passes in a single function, which saves starting a program for each pass.
    """
    if target()[0] != "cpu":
        return None
    few = entries is not None and fewer(entries, ENTRIES_WORTH_DIVIDING)
    return VectorRows(rows.axis, rows.axis_name, divided=not few)


def fewer(entries: tuple[Any, ...], bound: int) -> bool:
    """Returns whether arrays, or tuples of them, are known to have fewer entries in all."""
    size = sum(s.size for s in jax.tree.leaves(entries))
    return isinstance(size, int) and size < bound  # a symbolic size may be any


def called(solve: Callable[..., Values], entries: tuple[Array, ...], k: Array, lam: Array) -> Values:
    """Returns ``solve(entries, k, lam)``, which XLA compiles about once for all calls of one shape in a program.

    A call takes as long as some passes over one short row, which is solved without one.
    """
    few = k.size == 1 and fewer(entries, _PIECE)
    return (solve if few else _compiled_once(solve))(entries, k, lam)


def shared(function: Callable[[Entry], Values], entries: tuple[Entry, ...]) -> Callable[[Entry], Values]:
    """Returns a function of one of several arrays; a CPU compiles it about once for all large ones of a shape."""
    if len(entries) < 3 or target()[0] != "cpu":
        return function
    once = _compiled_once(function)
    return lambda entry: (function if fewer((entry,), ENTRIES_WORTH_DIVIDING) else once)(entry)


def _compiled_once(function: Callable[..., Values]) -> Callable[..., Values]:
    """Returns a function whose calls XLA does not inline early, and compiles about once for all of one shape.

    A late call it cannot divide over devices, so that this is for a process with a single device.
    """
    late: Any = getattr(jax, "Inline", None)  # since JAX 0.12
    return jax.jit(function, inline=late.XLA_LATE) if late and jax.device_count() == 1 else function


def in_one_function(function: Callable[..., Values], start: Values, *arguments: Any) -> Values:
    """Returns ``function(*arguments)``, which a CPU runs as one function of one thread: for few entries.

    XLA starts a program for each step of a computation, and compiles each on its own, unless they are in a loop (see
    ``divided_over_cores``). This is a loop of one round, which the barriers keep XLA from seeing.

    Args:
      function: has no derivative.
      start: arrays of the shapes and dtypes of its results.
      arguments: trees of arrays.
    """
    rounds = lax.optimization_barrier(jnp.int32(1))

    def once(state: tuple[Array, Values]) -> tuple[Array, Values]:
        count, operands = lax.optimization_barrier((state[0], arguments))
        return count + 1, function(*operands)

    initial = (jnp.int32(0), varying_as(start, arguments))
    return lax.while_loop(lambda state: state[0] < rounds, once, initial)[1]


def rows_without_derivative(rows: Rows, entries: tuple[Array, ...] | None = None) -> Rows:
    """Returns the fastest ``rows`` on the device for counts, extremes and other reductions without a derivative."""
    return vector_rows(rows, entries) or rows


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def summed(parts: tuple[Array, ...], rows: Rows) -> Array:
    """Returns the sum of arrays laid out as ``rows`` says, one per row; differentiable any number of times."""
    return rows_without_derivative(rows).sum(_identity, parts)


@summed.defjvp
def _summed_jvp(rows, primals, tangents):
    return summed(*primals, rows), rows.sum(_identity, tangents[0])
