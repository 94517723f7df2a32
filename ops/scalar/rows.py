"""Reductions of the entries to one scalar per row: over one array or several, on one device or many."""

import dataclasses
import functools
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from .choice import choose

Entry = TypeVar("Entry")  # an array, or several of one shape read side by side
Summed = TypeVar("Summed")  # an array, or a tuple of them
Values = TypeVar("Values")  # a tree of arrays


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
        """Returns the sums of the arrays that ``function`` returns over the entries of each row.

        Booleans are counted exactly, in int32.
        """
        # Floats are added several times faster than integers on a CPU, and hold every integer up to this bound.
        size = sum(s.size if self.axis is None else s.shape[-1] for s in jax.tree.leaves(entries))
        shards = 1 if self.axis_name is None else lax.axis_size(self.axis_name)
        counted = jnp.float32 if size * shards <= 2**24 else jnp.int32

        def over_entries(value: Array) -> Array:
            value = value.astype(counted) if value.dtype == bool else value
            return jnp.sum(value, axis=self.axis, keepdims=self.axis is not None)

        values = [function(s) for s in entries]
        total = functools.reduce(
            functools.partial(jax.tree.map, jnp.add), [jax.tree.map(over_entries, value) for value in values]
        )
        total = total if self.axis_name is None else lax.psum(total, self.axis_name)
        return jax.tree.map(lambda part, one: part.astype(jnp.int32) if one.dtype == bool else part, total, values[0])

    def at_least(self, value: Array, bound: float) -> Array:
        """Returns the larger of both, or NaN if ``value`` is NaN, which must mark its row."""
        return jnp.maximum(value, bound)

    def at_most(self, value: Array, bound: Array | float) -> Array:
        """Returns the smaller of both, or NaN if ``value`` is NaN."""
        return jnp.minimum(value, bound)

    def fused(self, values: Values) -> Values:
        """Returns the arrays, one value per row each, computed in the way that is fastest on the device."""
        return values

    def loop_condition(self, unfinished: Array) -> Array:
        """Returns the condition of a loop of passes, in the form in which the device runs such a loop fastest."""
        return unfinished

    def max(self, function: Callable[[Entry], Array], entries: tuple[Entry, ...]) -> Array:
        """Returns the maximum of ``function`` over each row; it may miss NaNs, as XLA's CPU backend does."""
        best = functools.reduce(
            jnp.maximum, [jnp.max(function(s), axis=self.axis, keepdims=self.axis is not None) for s in entries]
        )
        return best if self.axis_name is None else lax.pmax(best, self.axis_name)

    def extent(self, entries: tuple[Array, ...], floor: Array | float, *, signed: bool) -> tuple[Array, Array, Array]:
        """Returns, per row, how many entries exceed ``floor`` (int32), the smallest above ``-inf``, and the largest.

        The latter are ``inf`` and ``-inf`` in a row without such entries. Unless ``signed``, entries are not negative,
        and 0 is given for the smallest.
        """
        available = self.sum(lambda s: s > floor, entries)
        largest = self.max(lambda s: s, entries)
        if not signed:
            return available, jnp.zeros_like(largest), largest
        return available, -self.max(lambda s: choose(s > -jnp.inf, -s, -jnp.inf), entries), largest
