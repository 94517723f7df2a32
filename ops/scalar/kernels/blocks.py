"""The kernel for GPUs of NVIDIA of rows too long for one program: several share a row, and one launch is one pass.

A launch takes the sums that the one before has left, of every program one of each. Each program adds them up, finds the
next point from them, as all others do, and leaves the sums of its own entries there. So nothing of a round is left to
do between two launches, and no program waits for another.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

from ..rootfinding import End, Root, Search, State, search
from ..rows import Rows
from ..twofloat import TwoFloat
from .passes import Keys, Piece, Scalars, Solve
from .triton import PIECE, KeepsNaN, TritonPieces, read_piece

# Programs a row: somewhat more than a GPU has processors, all of which then read the same row.
_PROGRAMS = 256


@dataclasses.dataclass(frozen=True)
class _Parts(KeepsNaN):
    """How one scalar per row is reduced from the sums of its parts, those of each summand by its number."""

    axis: None = None

    def sum(self, function: Any, entries: tuple[Any, ...]) -> Any:
        """As of ``Rows``, of what ``function`` has been summed up to."""
        kinds, tree = jax.tree.flatten(jax.eval_shape(function, jax.ShapeDtypeStruct((1,), jnp.float32)))
        parts = [entries[0](number) for number in range(len(kinds))]
        # Counts of parts are exact, and their sum is, too, as an integer.
        typed = [part.astype(jnp.int32) if one.dtype == bool else part for part, one in zip(parts, kinds, strict=True)]
        return jax.tree.unflatten(tree, [jnp.sum(part, 0, keepdims=True) for part in typed])


class _Given(NamedTuple):
    """What a program is told of its row, as ``find_root`` is, and by ``OnePass``; ``scalars`` are those of keys."""

    scalars: Scalars
    k: Array
    available: Array
    lam: Array
    start: Array
    left: End
    right: End
    extended: Array | None  # of kernels, that know no booleans; None: in all rows

    def search(self) -> Search:
        return search(self.start, self.left, self.right, extended=True if self.extended is None else self.extended > 0)

    def of(self, one_pass: Any, entries: Piece, rows: Rows) -> Any:
        """The pass over these entries."""
        equation = dataclasses.replace(one_pass.equation, rows=rows)
        return type(one_pass)((entries,), self.k, self.available, self.lam, equation)


def in_blocks(s: Array, scalars: Scalars, keys: Keys, solve: Solve, *, interpret: bool = False) -> TwoFloat:
    """Thresholds of rows ``(rows, n)``, with scalars ``(rows, 1)``."""
    find = functools.partial(_find_root, s, scalars, keys, interpret)
    return solve((keys(s, *scalars),), *scalars[:2], Rows(), find=find)


def _find_root(
    s: Array,
    scalars: Scalars,
    keys: Keys,
    interpret: bool,
    one_pass: Any,
    start: Array,
    left: End,
    right: End,
    *,
    extended: bool | Array,
) -> Root:
    """As ``find_root``; what ``one_pass`` passes over are the keys of ``s``."""
    count, n = s.shape
    pieces = -(-n // (PIECE * _PROGRAMS))  # of a program
    blocks = -(-n // (PIECE * pieces))
    padded = pl.next_power_of_2(blocks)
    between = None if isinstance(extended, bool) else extended.astype(jnp.int32)
    given = _Given(scalars, one_pass.k, one_pass.available, one_pass.lam, start, left, right, between)
    by = given.search()
    summands = len(jax.tree.leaves(jax.eval_shape(one_pass.sums, TwoFloat(start, start))))

    def kernel(s_ref: Any, given_refs: Any, *refs: Any) -> None:
        *before, new_state, new_parts = refs
        here = jax.tree.map(lambda ref: ref[...], given_refs)
        there = here.search()
        state = there.initial
        if before:
            last, part_refs = jax.tree.map(lambda ref: ref[...], before[0]), before[1]
            index = lax.iota(jnp.int32, padded)

            def part(number: int) -> Array:
                return pltriton.load(part_refs[number].at[pl.ds(0, index.size)], mask=index < blocks, other=0.0)

            state = there.advance(last, here.of(one_pass, part, _Parts())(there.looked_at(last)))
            state = jax.tree.map(functools.partial(lax.select, last.done > 0), last, state)
        first = pl.program_id(1) * pieces

        def piece(number: Array | int) -> Array:
            return read_piece(s_ref, first + number, PIECE, n, keys, here.scalars)

        def sums() -> list[Array]:
            mine = here.of(one_pass, piece, TritonPieces(shape=(PIECE,), count=pieces))
            return [total.astype(s_ref.dtype) for total in jax.tree.leaves(mine.sums(there.looked_at(state)))]

        nothing = [jnp.zeros((1,), s_ref.dtype)] * summands  # of a row that is done
        found = lax.cond(jnp.max(state.done) > 0, lambda: nothing, sums)
        for ref, value in zip((*new_state, *new_parts), (*state, *found), strict=True):
            ref[...] = value

    row = pl.BlockSpec((1,), lambda i, j: (i,))  # of scalars
    all_parts = pl.BlockSpec((None, padded), lambda i, j: (i, 0))
    own_part = pl.BlockSpec((None, 1), lambda i, j: (i, j))
    kind = jax.typeof(s).manual_axis_type

    def launch(*before: Any) -> tuple[State, list[Array]]:
        state, parts = pl.pallas_call(
            kernel,
            grid=(count, blocks),
            in_specs=[
                pl.BlockSpec((None, blocks * pieces * PIECE), lambda i, j: (i, 0)),
                jax.tree.map(lambda _: row, given),
                *([jax.tree.map(lambda _: row, by.initial), summands * [all_parts]] if before else []),
            ],
            out_specs=[jax.tree.map(lambda _: row, by.initial), summands * [own_part]],
            out_shape=[
                jax.tree.map(lambda one: jax.ShapeDtypeStruct((count,), one.dtype, manual_axis_type=kind), by.initial),
                summands * [jax.ShapeDtypeStruct((count, blocks), s.dtype, manual_axis_type=kind)],
            ],
            compiler_params=pltriton.CompilerParams(num_warps=16, num_stages=1),
            interpret=interpret,
            name="topk_pass",
        )(s, jax.tree.map(lambda scalar: scalar.reshape(count), given), *before)
        return state, parts

    def of_rows(state: State) -> State:
        return jax.tree.map(lambda scalar: scalar.reshape(count, 1), state)

    # Two launches a round: the second writes where the first has read, or all would be copied from one round to the
    # next. And the host, who has to look whether to go on, looks half as often.
    state, _ = lax.while_loop(
        lambda carried: by.unfinished(of_rows(carried[0])), lambda carried: launch(*launch(*carried)), launch()
    )
    return by.root(of_rows(state))
