"""Functions as kernels take them: by primitives that the language of a kernel has."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, Literal

from ..choice import choose


def _floor(x: Array) -> Array:
    nearest = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    return choose(nearest > x, nearest - 1.0, nearest)


def _log1p(x: Array) -> Array:
    more = 1.0 + x
    as_it_is = (more == 1.0) | (more == jnp.inf)
    return choose(as_it_is, x, lax.log(more) * (x / (more - 1.0)))  # made up for what is lost of x in the sum


def _nextafter(x: Array, towards: Array) -> Array:
    up = towards > x
    bits = lax.bitcast_convert_type(x, jnp.int32)
    moved = lax.bitcast_convert_type(choose((x > 0) == up, bits + 1, bits - 1), x.dtype)
    moved = choose(x == 0, choose(up, 1e-45, -1e-45, x.dtype), moved)
    return choose(x == towards, x, choose(x == x, moved, x))


def _pow(x: Array, exponent: Array) -> Array:
    return lax.exp(exponent * lax.log(x))


OF_MOSAIC: Mapping[str, Callable] = {
    "floor": _floor,
    "is_finite": lambda x: lax.abs(x) < jnp.inf,
    "log1p": _log1p,
    "nextafter": _nextafter,
    "pow": _pow,
}


def computed_by(own: Mapping[str, Callable], function: Callable) -> Callable:
    """``function`` with these primitives computed by these functions, and nothing reduced that is one number."""

    def run(*arguments: Array) -> Any:
        closed, result = jax.make_jaxpr(function, return_shape=True)(*arguments)
        return jax.tree.unflatten(jax.tree.structure(result), _evaluate(own, closed, *arguments))

    return run


def _evaluate(own: Mapping[str, Callable], closed: ClosedJaxpr, *arguments: Any) -> list[Any]:
    jaxpr = closed.jaxpr
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *arguments], strict=True))

    def value(variable: Any) -> Any:
        if not isinstance(variable, Literal):
            return known[variable]
        # There are no boolean constants.
        return lax.ne(jnp.int32(variable.val), jnp.int32(0)) if variable.aval.dtype == bool else variable.val

    for equation in jaxpr.eqns:
        name, options = equation.primitive.name, equation.params
        given = [value(variable) for variable in equation.invars]
        if name in own:
            found = [own[name](*given)]
        elif name.startswith("reduce_") and not given[0].shape:
            found = given
        elif name in ("jit", "pjit", "custom_jvp_call"):
            found = _evaluate(own, options["call_jaxpr" if name == "custom_jvp_call" else "jaxpr"], *given)
        elif name == "while":
            found = _loop(own, given, **options)
        else:
            found = equation.primitive.bind(*given, **options)
            found = found if equation.primitive.multiple_results else [found]
        known.update(zip(equation.outvars, found, strict=True))
    return [value(variable) for variable in jaxpr.outvars]


def _loop(
    own: Mapping[str, Callable], given: list[Any], *, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int
) -> list[Any]:
    of_condition, given = given[:cond_nconsts], given[cond_nconsts:]
    of_body, start = given[:body_nconsts], given[body_nconsts:]
    return lax.while_loop(
        lambda carried: _evaluate(own, cond_jaxpr, *of_condition, *carried)[0],
        lambda carried: _evaluate(own, body_jaxpr, *of_body, *carried),
        start,
    )
