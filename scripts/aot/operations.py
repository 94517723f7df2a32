"""Operations of a traced program: those of its matrix products, which decide on accelerators.

Counted in the jaxpr, of all devices together, before the compiler hides products in convolutions and libraries: `scan`
times its length, `shard_map` times its devices, what is computed again in the backward pass once more. A multiplication
and an addition are two operations. A product of float32 at a higher precision is several of bfloat16.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from jax.extend import core
from jax.lax import Precision

from scripts.aot.contents import Buffer


@dataclasses.dataclass(frozen=True)
class Operations:
    """Of a program.

    Attributes:
      products: operations of matrix products and convolutions.
      weighted: the same in units of bfloat16 operations, by `Passes`.
    """

    products: float
    weighted: float


@dataclasses.dataclass(frozen=True)
class Passes:
    """How many bfloat16 operations one of float32 takes the time of, by its precision."""

    default: float
    high: float
    highest: float


# TPUs multiply bfloat16 alone: 1, 3 or 6 times. An H200 has TF32 at half the rate (494.5e12), and float32 at 67e12.
PASSES = {"tpu": Passes(1, 3, 6), "cuda": Passes(2, 2, 989 / 67), "cpu": Passes(1, 1, 1)}


def count(jaxpr: Any, platform: str, assumed: float) -> Operations:
    """Of a jaxpr, whose `while` loops are assumed to go round so often."""
    products = weighted = 0.0
    for equation, times in _equations(jaxpr, assumed):
        number = _products(equation) * times
        products += number
        weighted += number * _weight(equation, PASSES[platform])
    return Operations(products, weighted)


def _equations(jaxpr: Any, assumed: float) -> Iterator[tuple[Any, float]]:
    """All equations that multiply, and how often they are carried out."""
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name in ("dot_general", "conv_general_dilated"):
            yield equation, 1.0
            continue
        inner = list(core.jaxprs_in_params(params))
        times = 1.0
        if name == "scan":
            times = params["length"]
        elif name == "while":
            times = assumed
        elif name == "shard_map":
            times = math.prod(dict(params["mesh"].shape)[axis] for axis in params["newly_manual_axes"])
        elif name == "pallas_call":
            times = math.prod(params["grid_mapping"].grid)
        found = [list(_equations(program, assumed)) for program in inner]
        if name == "cond":  # whichever branch is taken, it is no more than the longest
            found = [max(found, key=lambda branch: sum(_products(one) * n for one, n in branch), default=[])]
        for program in found:
            for one, number in program:
                yield one, number * times


def largest(jaxpr: Any, number: int) -> list[Buffer]:
    """The largest arrays of a jaxpr: of all devices together, but where each computes for itself."""
    found: dict[str, Buffer] = {}

    def look(jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            inner = list(core.jaxprs_in_params(equation.params))
            for program in inner:
                look(program)
            for variable in [] if inner else equation.outvars:
                shape, dtype = getattr(variable.aval, "shape", ()), getattr(variable.aval, "dtype", None)
                if isinstance(dtype, np.dtype):
                    name = f"{dtype.name}[{','.join(map(str, shape))}]"
                    source = f"{equation.source_info.name_stack}/{equation.primitive.name}".lstrip("/")
                    found.setdefault(name, Buffer(name, math.prod(shape) * dtype.itemsize, source))

    look(jaxpr)
    return sorted(found.values(), key=lambda buffer: -buffer.bytes)[:number]


def _products(equation: Any) -> float:
    out = math.prod(equation.outvars[0].aval.shape)
    left, right = (variable.aval.shape for variable in equation.invars[:2])
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2.0 * out * math.prod(left[axis] for axis in contracted)
    numbers = equation.params["dimension_numbers"]
    return 2.0 * out * math.prod(right) / right[numbers.rhs_spec[0]]


def _weight(equation: Any, passes: Passes) -> float:
    """Of an operation."""
    if all(variable.aval.dtype.itemsize < 4 for variable in equation.invars[:2]):
        return 1.0
    precision = equation.params["precision"]
    highest = precision[0] if isinstance(precision, tuple) else precision
    return {Precision.HIGHEST: passes.highest, Precision.HIGH: passes.high}.get(highest, passes.default)
