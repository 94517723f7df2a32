"""The kernels for GPUs of NVIDIA: one row a program, in registers, or read a piece at a time.

One kernel, which two languages take: Mosaic's where the chip has it, Triton's on older ones. Both have it read arrays
where they lie, in pieces that never reach beyond the end of a row, and compute scalars of rows as single numbers.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl

from ..choice import choose
from ..rows import Rows
from ..twofloat import TwoFloat
from .passes import Keys, Pieces, Scalars, Solve
from .primitives import OF_MOSAIC, computed_by


_NAME = "topk_threshold"


class Language(NamedTuple):
    """What a kernel is compiled from.

    Attributes:
      least: how many entries the shortest piece has.
      piece: the longest, of as many as the registers of a program hold.
      launch: runs a kernel, as ``_launch_triton`` does.
      laid_out: entries, one a thread at a time: a row may start anywhere.
      own: by which functions primitives are computed that it lacks.
    """

    least: int
    piece: int
    launch: Callable[..., Any]
    laid_out: Callable[[Array], Array]
    own: Mapping[str, Callable]


def triton(interpret: bool = False) -> Language:
    """From compute capability 8 on; deprecated since JAX 0.11. Interpreted, on any platform."""
    launch = functools.partial(_launch_triton, interpret=interpret)
    return Language(32, 8192, launch, lambda values: values, {})


def mosaic(interpret: bool = False) -> Language:
    """For Hopper and Blackwell, where a program has 128 threads."""
    if interpret:
        return triton(interpret)._replace(least=128, piece=2048, own=OF_MOSAIC)
    from jax.experimental.pallas import mosaic_gpu as plgpu

    def laid_out(values: Array) -> Array:
        return plgpu.layout_cast(values, plgpu.Layout.WG_STRIDED(values.shape, vec_size=1))

    return Language(128, 2048, _launch_mosaic, laid_out, OF_MOSAIC)


def _launch_triton(body: Callable, out: Any, *arrays: Array, size: int, interpret: bool) -> Any:
    """Runs ``body`` of the number of each row, and of refs of whole arrays; gives what it writes, of the types ``out``."""
    from jax.experimental.pallas import triton as pltriton

    return pl.pallas_call(
        lambda *refs: body(pl.program_id(0), *refs),
        grid=out[0].shape,
        out_shape=out,
        compiler_params=pltriton.CompilerParams(num_warps=max(1, min(16, size // 512)), num_stages=1),
        interpret=interpret,
        name=_NAME,
    )(*arrays)


def _launch_mosaic(body: Callable, out: Any, *arrays: Array, size: int) -> Any:
    from jax.experimental.pallas import mosaic_gpu as plgpu

    return plgpu.kernel(
        lambda *refs: body(lax.axis_index("row"), *refs),
        out_type=out,
        grid=out[0].shape,
        grid_names=("row",),
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane),
        kernel_name=_NAME,
    )(*arrays)


class KeepsNaN(Rows):
    """Scalars of rows where a maximum or minimum of a NaN and a number is the number, as for Triton."""

    def at_least(self, value: Array, bound: float) -> Array:
        """As of ``Rows``."""
        return choose(value < bound, bound, value)

    def at_most(self, value: Array, bound: Array | float) -> Array:
        """As of ``Rows``."""
        return choose(value > bound, bound, value)


class GpuPieces(KeepsNaN, Pieces):
    """Pieces of a row in a kernel for GPUs."""


def row_by_row(s: Array, scalars: Scalars, keys: Keys, solve: Solve, language: Language) -> TwoFloat:
    """Thresholds of rows ``(rows, n)``, with scalars ``(rows, 1)``."""
    count, n = s.shape
    if n < language.least:
        s, keys, n = keys(s, *scalars), lambda s, *_: s, language.least
        s = jnp.pad(s, ((0, 0), (0, n - s.shape[1])), constant_values=-jnp.inf)
    size = min(language.piece, 1 << (n.bit_length() - 1))
    layout = GpuPieces(shape=(size,), count=-(-n // size), keepdims=False)

    def body(row: Array, s_ref: Any, *refs: Any) -> None:
        def solved(*values: Array) -> TwoFloat:
            def read(number: Array | int) -> Array:
                # The last piece ends where the row does; what the one before it has, too, takes no part.
                start, last = number * size, n - size
                first = min(start, last) if isinstance(start, int) else lax.min(start, last)
                s = keys(language.laid_out(s_ref[row, pl.ds(first, size)]), *values)
                return choose(language.laid_out(lax.iota(jnp.int32, size)) >= start - first, s, -jnp.inf)

            # In registers, if there is room.
            held = [read(number) for number in range(layout.count if layout.count <= 2 else 0)]
            return solve((held.__getitem__ if held else read,), *values[:2], layout)

        found = computed_by(language.own, solved)(*(ref[row] for ref in refs[:-2]))
        for ref, value in zip(refs[-2:], found, strict=True):
            ref[row] = value

    one = jax.ShapeDtypeStruct((count,), s.dtype, manual_axis_type=jax.typeof(s).manual_axis_type)
    hi, lo = language.launch(body, [one, one], s, *(value.reshape(count) for value in scalars), size=size)
    return TwoFloat(hi.reshape(count, 1), lo.reshape(count, 1))
