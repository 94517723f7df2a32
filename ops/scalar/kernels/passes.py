"""Passes over rows that lie on chip, a piece at a time."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from ...arithmetic import TwoFloat
from ..rows import Entry, Rows, Summed

Piece = Callable[[Any], Array]  # returns the piece with a given number
Scalars = tuple[Array, ...]  # k, lam, and further scalars that the keys of a row depend on
Keys = Callable[..., Array]  # returns the keys by which entries compete, from entries and the scalars of their rows
Solve = Callable[..., TwoFloat]  # returns thresholds, from entries in a layout, k, lam and the layout (Rows)


@dataclasses.dataclass(frozen=True)
class Pieces(Rows):
    """Reductions to one scalar per row of entries that a function reads a piece at a time, by the piece's number.

    A kernel compiler unrolls operations on an array over its registers, which limits the size of a piece.

    Attributes:
      shape: shape of a piece.
      count: how many pieces there are.
      over: axes of a piece along which the entries of a row lie; the other axes index rows.
      keepdims: whether reductions keep these axes.
    """

    axis: None = None
    shape: tuple[int, ...] = ()
    count: int = 1
    over: tuple[int, ...] = (0,)
    keepdims: bool = True

    def _fold(self, function: Callable, pieces: tuple[Any, ...], step: Callable) -> list[Array]:
        piece: Piece = pieces[0]

        def values(number: Array | int) -> list[Array]:
            return [value.astype(jnp.float32) for value in jax.tree.leaves(function(piece(number)))]

        def fold(number: Array | int, sofar: list[Array]) -> list[Array]:
            return [step(folded, value) for folded, value in zip(sofar, values(number), strict=True)]

        # The fold starts from the first piece, because zeros would not have the layout of a piece.
        sofar = values(0)
        if self.count <= 2:
            return sofar if self.count == 1 else fold(1, sofar)
        # Not `fori_loop`: it becomes a `scan`, whose parameters differ between versions of JAX.
        more, once = (lambda carried: carried[0] < self.count), (lambda carried: (carried[0] + 1, fold(*carried)))
        return lax.while_loop(more, once, (jnp.int32(1), sofar))[1]

    def sum(self, function: Callable[[Entry], Summed], entries: tuple[Entry, ...]) -> Summed:
        """See ``Rows``."""
        kinds, tree = jax.tree.flatten(jax.eval_shape(function, jax.ShapeDtypeStruct(self.shape, jnp.float32)))
        totals = [jnp.sum(part, self.over, keepdims=self.keepdims) for part in self._fold(function, entries, jnp.add)]
        typed = [
            total.astype(jnp.int32) if kind.dtype == bool else total for total, kind in zip(totals, kinds, strict=True)
        ]
        return jax.tree.unflatten(tree, typed)

    def ahead(self, entries: tuple[Any, ...]) -> int:
        """See ``Rows``; a loop inside a kernel waits for nothing."""
        return 0

    def max(self, function: Callable[[Entry], Array], entries: tuple[Entry, ...]) -> Array:
        """See ``Rows``."""
        (best,) = self._fold(function, entries, jnp.maximum)
        return jnp.max(best, self.over, keepdims=self.keepdims)
