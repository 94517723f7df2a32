"""The kernels for TPUs, compiled by Mosaic: 128 rows at a time, one in each lane, or one long row at a time."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ...arithmetic import TwoFloat, choose
from .passes import Keys, Pieces, Scalars, Solve

_LANES = 128
# A register holds 8 by 128 numbers. A piece of this many sublanes, its sums and temporaries fit into all 64 registers.
_SUBLANES = 64
# Bytes that the compiler needs besides the rows.
_COMPILER_BYTES = 2 * 2**20
# Up to this many bytes per row, every chip has room for the next row as well.
_DOUBLE_BUFFER_BYTES = 4 * 2**20


def _round_up(size: int, to: int) -> int:
    return -(-size // to) * to


def side_by_side(s: Array, scalars: Scalars, keys: Keys, solve: Solve, *, interpret: bool = False) -> TwoFloat:
    """Returns the thresholds ``(rows, 1)`` of rows ``(rows, n)`` with scalars ``(rows, 1)``, 128 rows at a time.

    Each row has a lane of its own, so that scalars of 128 rows fill a register, too. The compiler stores a matrix in
    the orientation that needs the least padding. If that is the transpose, rows are transposed before the kernel, which
    then moves no data; otherwise they are transposed on chip.
    """
    count, n = s.shape
    if count < _LANES:
        missing = ((0, _LANES - count), (0, 0))
        s = jnp.pad(s, missing)
        scalars = tuple(jnp.pad(value, missing) for value in scalars)
    rows, size = s.shape[0], _round_up(n, _LANES)
    turned = rows * size > _round_up(rows, _LANES) * _round_up(n, 8)
    layout = Pieces(shape=(_SUBLANES, _LANES), count=-(-n // _SUBLANES))

    def kernel(s_ref: Any, *refs: Any) -> None:
        *scalar_refs, hi_ref, lo_ref, lanes_ref = refs
        first = pl.program_id(0) * _LANES
        real = lax.broadcasted_iota(jnp.int32, (1, _LANES), 1) + first < count
        k, *others = (choose(real, ref[...], fill) for ref, fill in zip(scalar_refs, (0.0, 1.0, 1.0), strict=False))

        def load(number: Array, _: None) -> None:
            start = pl.multiple_of(number * _LANES, _LANES)
            tile = s_ref[pl.ds(start, _LANES), :] if turned else s_ref[:, pl.ds(start, _LANES)].T
            entry = lax.broadcasted_iota(jnp.int32, tile.shape, 0) + start
            row = lax.broadcasted_iota(jnp.int32, tile.shape, 1) + first
            lanes_ref[pl.ds(start, _LANES), :] = choose((row < count) & (entry < n), keys(tile, k, *others), -jnp.inf)

        lax.fori_loop(0, size // _LANES, load, None)
        thresholds = solve(
            (lambda number: lanes_ref[pl.ds(pl.multiple_of(number * _SUBLANES, _SUBLANES), _SUBLANES), :],),
            k,
            others[0],
            layout,
        )
        hi_ref[...], lo_ref[...] = thresholds

    scalar = pl.BlockSpec((1, _LANES), lambda i: (0, i))
    out_type = jax.ShapeDtypeStruct((1, rows), s.dtype, manual_axis_type=jax.typeof(s).manual_axis_type)
    block = pl.BlockSpec((size, _LANES), lambda i: (0, i)) if turned else pl.BlockSpec((_LANES, size), lambda i: (i, 0))
    hi, lo = pl.pallas_call(
        kernel,
        grid=(-(-rows // _LANES),),
        in_specs=[block, *len(scalars) * [scalar]],
        out_specs=[scalar, scalar],
        out_shape=[out_type, out_type],
        scratch_shapes=[pltpu.VMEM((size, _LANES), s.dtype)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel",), vmem_limit_bytes=3 * 4 * _LANES * size + _COMPILER_BYTES
        ),
        interpret=interpret,
        name="topk_threshold",
    )(s.T if turned else s, *(value.reshape(1, rows) for value in scalars))
    return TwoFloat(hi.reshape(rows, 1)[:count], lo.reshape(rows, 1)[:count])


def one_by_one(s: Array, scalars: Scalars, keys: Keys, solve: Solve, *, interpret: bool = False) -> TwoFloat:
    """Returns the thresholds of rows ``(rows, n)`` with scalars ``(rows, 1)``, one at a time, folded into registers."""
    (count, n), (k, lam), s = s.shape, scalars[:2], keys(s, *scalars)
    size = _round_up(n, _SUBLANES * _LANES)
    folded = jnp.pad(s, ((0, 0), (0, size - n)), constant_values=-jnp.inf).reshape(count, -1, _LANES)
    layout = Pieces(shape=(_SUBLANES, _LANES), count=size // (_SUBLANES * _LANES), over=(0, 1))

    def kernel(s_ref: Any, k_ref: Any, lam_ref: Any, hi_ref: Any, lo_ref: Any) -> None:
        threshold = solve(
            (lambda number: s_ref[pl.ds(pl.multiple_of(number * _SUBLANES, _SUBLANES), _SUBLANES), :],),
            k_ref[...][:, :1],
            lam_ref[...][:, :1],
            layout,
        )
        for ref, value in zip((hi_ref, lo_ref), threshold, strict=True):
            ref[...] = jnp.broadcast_to(value, (1, _LANES))

    def spread(value: Array) -> Array:
        return jnp.broadcast_to(value[:, None], (count, 1, _LANES))

    scalar = pl.BlockSpec((None, 1, _LANES), lambda i: (i, 0, 0))
    # If there is room, the next row is fetched while one is solved.
    buffers = 1 if count == 1 or 4 * size > _DOUBLE_BUFFER_BYTES else 2
    out_type = jax.ShapeDtypeStruct((count, 1, _LANES), s.dtype, manual_axis_type=jax.typeof(s).manual_axis_type)
    hi, lo = pl.pallas_call(
        kernel,
        grid=(count,),
        in_specs=[
            pl.BlockSpec((None, size // _LANES, _LANES), lambda i: (i, 0, 0), pipeline_mode=pl.Buffered(buffers)),
            scalar,
            scalar,
        ],
        out_specs=[scalar, scalar],
        out_shape=[out_type, out_type],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel",), vmem_limit_bytes=buffers * 4 * size + _COMPILER_BYTES
        ),
        interpret=interpret,
        name="topk_threshold_of_long_rows",
    )(folded, spread(k), spread(lam))
    return TwoFloat(hi[:, 0, :1], lo[:, 0, :1])
