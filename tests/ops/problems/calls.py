"""An operator called on rows: laid out along an axis, compiled together with its derivatives."""

import functools
from collections.abc import Callable

import jax
import numpy as np
from jax import Array

from tests.ops.problems.entries import Rows
from tests.ops.problems.operators import OPERATORS
from tests.ops.problems.setting import PER_ROW, Setting

# Code generated in a fifth of the time. What a user compiles is optimised, and rounds differently.
_QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
}
_AXIS = {"rows": -1, "columns": 0, "vmap": -1, "several": (0, 2), "all": None}


def lay_out(setting: Setting, values: np.ndarray) -> np.ndarray:
    """Rows ``(rows, n)``, or one value per row ``(rows,)``, as the operator is given them."""
    if setting.layout in ("several", "all") and values.ndim == 2:
        values = values.reshape(-1, *setting.matrix)
        return np.moveaxis(values, 1, 0) if setting.layout == "several" else values
    return values.T if setting.layout == "columns" and values.ndim == 2 else values


def gather(setting: Setting, values: np.ndarray) -> np.ndarray:
    """The way back, as ``(rows, n)`` or ``(rows, 1)``."""
    if values.size == setting.rows:
        return values.reshape(setting.rows, 1)
    if setting.layout == "several":
        values = np.moveaxis(values, 0, 1)
    return values.T if setting.layout == "columns" else values.reshape(setting.rows, setting.n)


Compiled = Callable[..., tuple[Array, ...]]


def compiled(setting: Setting, k: float | None = None, lam: float | None = None) -> Compiled:
    """The function of ``(x, k, lam, where, extra, cotangent)`` that returns the value and its derivatives.

    Args:
      setting: what to compile.
      k: a number, if it is to be known to the compiler; it is not differentiated then.
      lam: likewise.
    """
    operator = OPERATORS[setting.operator]
    call = functools.partial(operator.call(setting), axis=_AXIS[setting.layout])
    if setting.layout in ("vmap", "all"):
        call = jax.vmap(call, in_axes=(0, None if setting.known else 0, None if setting.known else 0, 0, 0))

    def run(
        x: Array, k_given: Array, lam_given: Array, where: Array, extra: Array, cotangent: Array
    ) -> tuple[Array, ...]:
        names = operator.arguments if k is None else ("x",)
        values = {"x": x, "k": k_given if k is None else k, "lam": lam_given if lam is None else lam}

        def of(*arguments: Array) -> Array:
            given = values | dict(zip(names, arguments, strict=True))
            return call(given["x"], given["k"], given["lam"], where, extra)

        y, pull = jax.vjp(of, *(values[name] for name in names))
        return (y, *pull(cotangent.reshape(y.shape)))

    on_cpu = jax.default_backend() == "cpu"
    return jax.jit(run, compiler_options=None if setting.optimized or not on_cpu else _QUICK)


def run(setting: Setting, rows: Rows, function: Compiled) -> dict[str, np.ndarray]:
    """Value and derivatives by their names, shapes ``(rows, n)`` or ``(rows, 1)``."""
    names = OPERATORS[setting.operator].arguments if not setting.known else ("x",)
    cotangent = rows.cotangent[:, 0] if setting.operator in PER_ROW else rows.cotangent
    given = (rows.x, rows.k, rows.lam, rows.where, rows.extra, cotangent)
    results = function(*(lay_out(setting, value) for value in given))
    return {name: gather(setting, np.asarray(result)) for name, result in zip(("value", *names), results, strict=True)}
