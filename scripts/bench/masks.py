"""The section ``masks``: operators beside peers, what their programs cost before they run, and memory."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

import ops
from scripts.bench import contestants as known
from scripts.bench.contestants import BOTH, BOX_SECTION, FORWARD, MODES, TOP_K, Contestant, Shape
from scripts.bench.process import Case, Found, Group
from scripts.bench.timing import Budget, Contest

_SHAPES = (
    Shape(12800, 400, 28),
    Shape(65536, 64, 6),  # routers of today, small and large
    Shape(16384, 256, 8),
    Shape(8, 151_936, 50),  # a vocabulary
    Shape(1, 300, 30),
    Shape(1, 1000, 100),
    Shape(8, 1000, 100),
    Shape(128, 1000, 100),
    Shape(1, 25_088, 2508),
    Shape(1, 10**6, 10**5),
    Shape(1, 10**7, 10**6),
)
_LARGE = (Shape(4096, 8192, 819), Shape(4096, 32_768, 64))  # the second is of a sparse autoencoder
_MEASURED = ("topk_mask p=2", "topk_mask p=4/3", "topk_mag p=2", "topk_mag p=4/3")  # memory and programs
_K, _LAM = np.float32(10.0), np.float32(0.1)  # of programs


def group(scale: str) -> Group:
    """The cases at a scale: each shape, the cost of each program, the memory of each operator."""
    n, seconds = 10**5 if scale == "small" else 10**7, {"small": 1.0, "cpu": 15.0, "device": 10.0}[scale]
    shapes = {"small": (Shape(16, 100, 10),), "cpu": _SHAPES, "device": (*_SHAPES, *_LARGE)}[scale]
    lams = {"small": (1.0,), "cpu": (1.0, 0.1, 1e-4), "device": (1.0, 0.1)}[scale]
    # Measurements that need no device take none of its time.
    measured = {"small": _MEASURED[:1], "cpu": _MEASURED, "device": ()}[scale]
    budget = Budget(seconds, fewest=3, most=400)
    cases = [Case(str(shape), functools.partial(_compared, shape, lams, budget)) for shape in shapes]
    cases += [Case(f"program of {name}", functools.partial(_program, name)) for name in measured]
    cases += [Case(f"memory of {name}", functools.partial(_memory, name, n), 0.5) for name in measured]
    return Group({"shapes": shapes, "lams": lams, "seconds": seconds, "memory": n}, cases)


def _compared(shape: Shape, lams: Sequence[float], budget: Budget, contest: Contest) -> Found:
    peers, missing = known.peers()
    return {"cases": [compare(shape, [*known.contestants(lams), *peers], budget, contest)], "missing_peers": missing}


def compare(shape: Shape, compared: Iterable[Contestant], budget: Budget, contest: Contest) -> Found:
    """Times all contestants on one shape.

    Returns:
      The shape and a row for each contestant and mode. Its ``status`` is ``timed``, or ``skipped`` (too large) or
      ``failed`` (it raised, or is wrong) with a ``reason``. Timed rows hold quartiles in milliseconds, and ``ratio_to``
      a baseline: the quotient of the two medians in the same mode, below 1 for the faster.
    """
    inputs, rows, calls = known.draw(shape), {}, {}
    for contestant in compared:
        name = contestant.name
        row: Found = {"contestant": name, "status": "timed", "reason": None}
        if inputs.x.size > contestant.limit:
            reason = f"too slow: {inputs.x.size} entries, limit {contestant.limit}"
            rows[name] = row | {"status": "skipped", "reason": reason}
            continue
        prepared = contest.attempt(name, functools.partial(_prepared, contestant, inputs))
        if prepared is None:
            rows[name] = row | {"status": "failed", "reason": contest.failed[name]}
            continue
        for mode, call in prepared[0].items():
            key = f"{name} {mode}"
            rows[key] = row | {"mode": mode, "inexact_by_design": contestant.tolerance is None, **prepared[1]}
            calls[key] = call
    times = contest.time(calls, budget)
    for key in calls:
        if key in times:
            mine, mode = times[key].median_ms, rows[key]["mode"]
            others = {name: times.get(f"{name} {mode}") for name in (TOP_K, BOX_SECTION)}
            ratios = {name: mine / other.median_ms if other else None for name, other in others.items()}
            rows[key] |= times[key]._asdict() | {"ratio_to": ratios}
        else:
            rows[key] |= {"status": "failed", "reason": contest.failed[key]}
    return {**shape._asdict(), "results": list(rows.values())}


def _prepared(contestant: Contestant, inputs: known.Inputs) -> tuple[known.Calls, dict[str, float]]:
    calls = contestant.prepare(inputs)
    return calls, contestant.errors(inputs, {mode: call() for mode, call in calls.items()})


def _program(name: str, _contest: Contest) -> Found:
    """Equations, and medians of seconds, of an operator's programs, where k and lam are known and where traced.

    Every repetition has a shape of its own, so that nothing is known of it.
    """
    rows = []
    for way, mode in itertools.product(("known", "traced"), MODES):
        program, times, count = jax.jit(_function(name, way, mode)), [], 0
        for n in range(1000, 1004):
            clock = [time.perf_counter()]
            traced = program.trace(np.ones((4, n), np.float32), _K, _LAM)
            clock.append(time.perf_counter())
            lowered = traced.lower()
            clock.append(time.perf_counter())
            lowered.compile()
            clock.append(time.perf_counter())
            times.append(np.diff(clock))
            count = equations(traced.jaxpr.jaxpr)
        medians = np.median(times[1:], axis=0).tolist()  # the first also imports and caches what the others find
        row = {"program": name, "mode": mode, "lam": way, "equations": count}
        rows.append(row | dict(zip(("traced_s", "lowered_s", "compiled_s"), medians, strict=True)))
    return {"programs": rows}


def _function(name: str, way: str, mode: str) -> Callable[..., Any]:
    operator, p = name.split(" p=")
    apply = functools.partial(getattr(ops, operator), p=known.EXPONENTS[p])

    def function(x: Any, k: Any, lam: Any) -> Any:
        y = apply(x, k, lam=lam) if way == "traced" else apply(x, float(_K), lam=float(_LAM))
        return y if mode == FORWARD else (jnp.vdot(y, y), y)

    moving = (0, 1, 2) if way == "traced" else (0,)
    return function if mode == FORWARD else jax.value_and_grad(function, moving, has_aux=True)


def equations(program: Any) -> int:
    """Counts the equations of a jaxpr, those of the programs inside it included."""
    return sum(1 + sum(map(equations, core.jaxprs_in_params(equation.params))) for equation in program.eqns)


def _memory(name: str, n: int, _contest: Contest) -> Found:
    """Temporary and output memory of one of our operators on a row, as the compiler plans it, in arrays of the row."""
    function = functools.partial(known.operators([1.0])[name], k=n // 10)
    both = jax.value_and_grad(functools.partial(known.weighted_sum, function))
    row = jax.ShapeDtypeStruct((1, n), jnp.float32)
    memory = {}
    for mode, program, arguments in ((FORWARD, function, (row,)), (BOTH, both, (row, row))):
        plan = jax.jit(program).lower(*arguments).compile().memory_analysis()
        assert plan is not None  # CPUs and GPUs tell
        used = plan.temp_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
        memory[mode] = {"compiled": used / (4 * n)}
    return {"memory": [{"contestant": name, "n": n, **memory}]}
