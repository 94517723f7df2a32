"""Operations of a program as JAX traces it, before the compiler hides products in convolutions and libraries.

Counted are matrix products and convolutions, which decide on accelerators, on all devices together: `scan` times its
length, `shard_map` times its devices, what is computed again in the backward pass once more. A `while` loop, whose
rounds its data decide, counts once. A multiplication and an addition are two operations.
"""

import math
from typing import Any

from jax.extend import core


def count(jaxpr: Any) -> float:
    """Operations of matrix products and convolutions."""
    total = 0.0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        inner = [count(program) for program in core.jaxprs_in_params(params)]
        times = 1
        if name == "scan":
            times = params["length"]
        elif name == "shard_map":
            times = math.prod(dict(params["mesh"].shape)[axis] for axis in params["newly_manual_axes"])
        elif name == "pallas_call":
            times = math.prod(params["grid_mapping"].grid)
        # Whichever branch is taken, it is no more than the longest.
        total += max(inner, default=0.0) if name == "cond" else times * sum(inner)
        if name in ("dot_general", "conv_general_dilated"):
            total += _products(equation)
    return total


def _products(equation: Any) -> float:
    out = math.prod(equation.outvars[0].aval.shape)
    left, right = (variable.aval.shape for variable in equation.invars[:2])
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2.0 * out * math.prod(left[axis] for axis in contracted)
    numbers = equation.params["dimension_numbers"]
    return 2.0 * out * math.prod(right) / right[numbers.rhs_spec[0]]
