"""The kernel for GPUs of NVIDIA, compiled by Triton: one row a program, in registers, or read a piece at a time."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

from ..choice import choose
from ..rows import Rows
from ..twofloat import TwoFloat
from .passes import Keys, Pieces, Scalars, Solve

# As many entries as the registers of one program hold; of longer rows pieces of this size are read from cache.
PIECE = 8192


class KeepsNaN(Rows):
    """Scalars of rows where a maximum or minimum of a NaN and a number is the number, as for Triton."""

    def at_least(self, value: Array, bound: float) -> Array:
        """As of ``Rows``."""
        return choose(value < bound, bound, value)

    def at_most(self, value: Array, bound: Array | float) -> Array:
        """As of ``Rows``."""
        return choose(value > bound, bound, value)


class TritonPieces(KeepsNaN, Pieces):
    """Pieces in a kernel of Triton's."""


def read_piece(s_ref: Any, number: Array | int, size: int, n: int, keys: Keys, scalars: Scalars) -> Array:
    """What competes among the entries of a piece of a row of ``n``; ``-inf`` beyond its end."""
    start = number * size
    index = lax.iota(jnp.int32, size) + start
    x = pltriton.load(s_ref.at[pl.ds(start, size)], mask=index < n, other=0.0)
    return choose(index < n, keys(x, *scalars), -jnp.inf)


def row_by_row(s: Array, scalars: Scalars, keys: Keys, solve: Solve, *, interpret: bool = False) -> TwoFloat:
    """Thresholds of rows ``(rows, n)``, with scalars ``(rows, 1)``."""
    count, n = s.shape
    piece = min(PIECE, pl.next_power_of_2(max(n, 32)))
    pieces = -(-n // piece)
    layout = TritonPieces(shape=(piece,), count=pieces)

    def kernel(s_ref: Any, *refs: Any) -> None:
        values = [ref[...] for ref in refs[:-2]]

        def read(number: Array | int) -> Array:
            return read_piece(s_ref, number, piece, n, keys, tuple(values))

        held = read(0) if pieces == 1 else None
        found = solve((read if held is None else lambda _: held,), *values[:2], layout)
        for ref, value in zip(refs[-2:], found, strict=True):
            ref[...] = value

    scalar = pl.BlockSpec((1,), lambda i: (i,))
    one = jax.ShapeDtypeStruct((count,), s.dtype, manual_axis_type=jax.typeof(s).manual_axis_type)
    hi, lo = pl.pallas_call(
        kernel,
        grid=(count,),
        in_specs=[pl.BlockSpec((None, pieces * piece), lambda i: (i, 0)), *len(scalars) * [scalar]],
        out_specs=[scalar, scalar],
        out_shape=[one, one],
        compiler_params=pltriton.CompilerParams(num_warps=max(1, min(16, piece // 512)), num_stages=1),
        interpret=interpret,
        name="topk_threshold",
    )(s, *(value.reshape(count) for value in scalars))
    return TwoFloat(hi.reshape(count, 1), lo.reshape(count, 1))
