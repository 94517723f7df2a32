"""The kernel for NVIDIA's GPUs: each program solves one row, held in registers or read a piece at a time.

Two compilers take the kernel: Mosaic on chips that it supports, and Triton on older ones. In both the kernel reads
arrays in place, in pieces that never reach beyond the end of a row, and computes scalars of rows as single numbers.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.extend.core import ClosedJaxpr, Literal

from ...arithmetic import TwoFloat, choose
from .passes import Keys, Pieces, Scalars, Solve

_NAME = "topk_threshold"


class Language(NamedTuple):
    """The properties of a kernel language.

    Attributes:
      least: the number of entries of the shortest piece.
      piece: the number of entries of the longest piece, which fills the registers of a program.
      launch: runs a kernel, like ``_launch_triton``.
      laid_out: gives entries a layout that loads one entry per thread, since a row may start at any address.
      replacements: functions for the primitives that the language lacks.
    """

    least: int
    piece: int
    launch: Callable[..., Any]
    laid_out: Callable[[Array], Array]
    replacements: Mapping[str, Callable[..., Array]]


def triton(interpret: bool = False) -> Language:
    """Returns Triton, for compute capability 8 and newer; deprecated since JAX 0.11. Interpreted, it runs anywhere."""
    return Language(32, 8192, functools.partial(_launch_triton, interpret=interpret), lambda entries: entries, {})


def mosaic(interpret: bool = False) -> Language:
    """Returns Mosaic, for compute capability 9 and 10 (Hopper, Blackwell); a program has 128 threads."""
    if interpret:
        return triton(interpret)._replace(least=128, piece=2048, replacements=_MOSAIC_REPLACEMENTS)
    from jax.experimental.pallas import mosaic_gpu as plgpu

    def laid_out(entries: Array) -> Array:
        return plgpu.layout_cast(entries, plgpu.Layout.WG_STRIDED(entries.shape, vec_size=1))

    return Language(128, 2048, _launch_mosaic, laid_out, _MOSAIC_REPLACEMENTS)


def _launch_triton(body: Callable, out: Any, *arrays: Array, size: int, interpret: bool) -> Any:
    """Runs ``body(row, *refs)`` for each row; returns the arrays that it writes, of the types ``out``."""
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


class GpuPieces(Pieces):
    """Pieces in a kernel language like Triton, where the maximum of NaN and a number is the number."""

    def at_least(self, value: Array, bound: float) -> Array:
        """See ``Rows``."""
        return choose(value < bound, bound, value)

    def at_most(self, value: Array, bound: Array | float) -> Array:
        """See ``Rows``."""
        return choose(value > bound, bound, value)


def row_by_row(s: Array, scalars: Scalars, keys: Keys, solve: Solve, language: Language) -> TwoFloat:
    """Returns the thresholds ``(rows, 1)`` of rows ``(rows, n)`` with scalars ``(rows, 1)``."""
    count, n = s.shape
    if n < language.least:
        s, keys, n = keys(s, *scalars), lambda s, *_: s, language.least
        s = jnp.pad(s, ((0, 0), (0, n - s.shape[1])), constant_values=-jnp.inf)
    size = min(language.piece, 1 << (n.bit_length() - 1))
    layout = GpuPieces(shape=(size,), count=-(-n // size), keepdims=False)

    def body(row: Array, s_ref: Any, *refs: Any) -> None:
        def solved(*values: Array) -> TwoFloat:
            def read(number: Array | int) -> Array:
                # The last piece ends at the end of the row; entries that the piece before it holds too are masked.
                start, last = number * size, n - size
                first = min(start, last) if isinstance(start, int) else lax.min(start, last)
                entries = keys(language.laid_out(s_ref[row, pl.ds(first, size)]), *values)
                return choose(language.laid_out(lax.iota(jnp.int32, size)) >= start - first, entries, -jnp.inf)

            # One or two pieces stay in registers.
            held = [read(number) for number in range(layout.count if layout.count <= 2 else 0)]
            return solve((held.__getitem__ if held else read,), *values[:2], layout)

        arguments = [ref[row] for ref in refs[:-2]]
        threshold = _evaluate(language.replacements, jax.make_jaxpr(solved)(*arguments), *arguments)
        for ref, value in zip(refs[-2:], threshold, strict=True):
            ref[row] = value

    out_type = jax.ShapeDtypeStruct((count,), s.dtype, manual_axis_type=jax.typeof(s).manual_axis_type)
    hi, lo = language.launch(body, [out_type, out_type], s, *(value.reshape(count) for value in scalars), size=size)
    return TwoFloat(hi.reshape(count, 1), lo.reshape(count, 1))


def _floor(x: Array) -> Array:
    nearest = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    return choose(nearest > x, nearest - 1.0, nearest)


def _log1p(x: Array) -> Array:
    more = 1.0 + x
    as_it_is = (more == 1.0) | (more == jnp.inf)
    return choose(as_it_is, x, lax.log(more) * (x / (more - 1.0)))  # corrects the rounding of 1 + x


def _nextafter(x: Array, towards: Array) -> Array:
    up = towards > x
    bits = lax.bitcast_convert_type(x, jnp.int32)
    moved = lax.bitcast_convert_type(choose((x > 0) == up, bits + 1, bits - 1), x.dtype)
    moved = choose(x == 0, choose(up, 1e-45, -1e-45, x.dtype), moved)
    return choose((x == towards) | (x != x), x, moved)


_MOSAIC_REPLACEMENTS: Mapping[str, Callable[..., Array]] = {
    "floor": _floor,
    "is_finite": lambda x: lax.abs(x) < jnp.inf,
    "log1p": _log1p,
    "nextafter": _nextafter,
    "pow": lambda x, exponent: lax.exp(exponent * lax.log(x)),
}


def _evaluate(replacements: Mapping[str, Callable[..., Array]], closed: ClosedJaxpr, *arguments: Any) -> list[Any]:
    """Returns the results of a jaxpr with ``replacements`` for some primitives and without reductions of scalars."""
    jaxpr = closed.jaxpr
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *arguments], strict=True))

    def value(variable: Any) -> Any:
        if not isinstance(variable, Literal):
            return known[variable]
        number = variable.val  # no language has boolean constants
        return lax.ne(jnp.int32(number), jnp.int32(0)) if jnp.result_type(number).kind == "b" else number

    for equation in jaxpr.eqns:
        name, options = equation.primitive.name, equation.params
        operands = [value(variable) for variable in equation.invars]
        if name in replacements:
            results = [replacements[name](*operands)]
        elif name.startswith("reduce_") and not operands[0].shape:
            results = operands
        elif name == "while":
            results = _loop(replacements, operands, **options)
        elif inner := options.get("jaxpr", options.get("call_jaxpr")):
            results = _evaluate(replacements, inner, *operands)
        else:
            results = equation.primitive.bind(*operands, **options)
            results = results if equation.primitive.multiple_results else [results]
        known.update(zip(equation.outvars, results, strict=True))
    return [value(variable) for variable in jaxpr.outvars]


def _loop(
    replacements: Any, given: list[Any], *, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int
) -> Any:
    first, last = cond_nconsts, cond_nconsts + body_nconsts
    return lax.while_loop(
        lambda carried: _evaluate(replacements, cond_jaxpr, *given[:first], *carried)[0],
        lambda carried: _evaluate(replacements, body_jaxpr, *given[first:last], *carried),
        given[last:],
    )
