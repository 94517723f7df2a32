"""What a program costs before it runs: its equations, and how long they are traced, lowered and compiled."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ops import topk_mag, topk_mask
from scripts.bench.contestants import BOTH, EXPONENTS, FORWARD, MODES, TOP_K, operator_name

WAYS = ("known", "traced")
KNOWN, TRACED = WAYS
_K, _LAM = np.float32(10.0), np.float32(0.1)
_SECONDS = ("traced_s", "lowered_s", "compiled_s")


def programs() -> Iterator[tuple[str, str, str, Callable[..., Any]]]:
    """Names, modes, whether ``k`` and ``lam`` are known, and functions of ``x``, ``k`` and ``lam``."""
    for operator in (topk_mask, topk_mag):
        for name, p in EXPONENTS.items():

            def known(x: Any, k: Any, lam: Any, operator: Any = operator, p: float = p) -> Any:
                del k, lam
                return operator(x, float(_K), lam=float(_LAM), p=p)

            def traced(x: Any, k: Any, lam: Any, operator: Any = operator, p: float = p) -> Any:
                return operator(x, k, lam=lam, p=p)

            for way, function, moving in ((KNOWN, known, (0,)), (TRACED, traced, (0, 1, 2))):
                yield operator_name(operator.__name__, name), FORWARD, way, function
                yield operator_name(operator.__name__, name), BOTH, way, _with_gradient(function, moving)
    yield TOP_K, FORWARD, KNOWN, lambda x, k, lam: jax.lax.top_k(x, int(_K))


def _with_gradient(function: Callable[..., Any], moving: tuple[int, ...]) -> Callable[..., Any]:
    def total(*arguments: Any) -> Any:
        y = function(*arguments)
        return jnp.vdot(y, y), y

    return jax.value_and_grad(total, moving, has_aux=True)


def equations(program: Any) -> int:
    """How many equations a jaxpr has, those of the programs inside it included."""
    return sum(1 + sum(map(equations, core.jaxprs_in_params(equation.params))) for equation in program.eqns)


def measure(names: Sequence[str], n: int = 1000, repetitions: int = 3) -> list[dict[str, Any]]:
    """Equations, and medians of seconds, of the programs of these names.

    Every repetition has a shape of its own, so that nothing is known of it.
    """
    found = []
    for name, mode, way, function in programs():
        if name not in names:
            continue
        times, count = [], 0
        for size in range(n, n + repetitions + 1):
            x = np.ones((4, size), np.float32)
            clock = [time.perf_counter()]
            traced = jax.jit(lambda *arguments, function=function: function(*arguments)).trace(x, _K, _LAM)
            clock.append(time.perf_counter())
            lowered = traced.lower()
            clock.append(time.perf_counter())
            lowered.compile()
            clock.append(time.perf_counter())
            times.append(np.diff(clock))
            count = equations(traced.jaxpr.jaxpr)
        seconds = np.median(times[1:], axis=0)  # the first also imports and caches what the others find
        row = {"program": name, "mode": mode, "lam": way, "equations": count}
        found.append(row | dict(zip(_SECONDS, map(float, seconds), strict=True)))
    return found


def find(rows: Sequence[dict[str, Any]], program: str, mode: str, way: str) -> dict[str, Any] | None:
    """The row of a program, or None."""
    return next((row for row in rows if (row["program"], row["mode"], row["lam"]) == (program, mode, way)), None)


def lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The table."""
    if not rows:
        return
    yield "cost of a program: equations, and seconds traced + lowered + compiled, where k and lam are known or traced"
    for name in dict.fromkeys(row["program"] for row in rows):
        cells = []
        for mode in MODES:
            for way in WAYS:
                if row := find(rows, name, mode, way):
                    seconds = " + ".join(f"{row[part]:.2f}" for part in _SECONDS)
                    cells.append(f"{mode}, {way}: {row['equations']:>4} ({seconds})")
        yield f"  {name:<18} " + "   ".join(cells)
    yield ""
