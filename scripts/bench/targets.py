"""What was promised, held against what was measured."""

import functools
import itertools
import operator as comparison
from collections.abc import Callable, Iterator
from typing import Any

from scripts.bench import programs
from scripts.bench.case import find
from scripts.bench.contestants import BOTH, EXPONENTS, FORWARD, MODES, TOP_K, operator_name
from scripts.bench.peers import BOX_SECTION
from scripts.bench.sizes import Case

STEEPEST = 1.1
"""Slope of log time against log n up to which time counts as linear."""

MOST_ARRAYS = 10.0

MOST_EQUATIONS = {programs.KNOWN: 400, programs.TRACED: 500}
MOST_COMPILING = 0.35
"""Seconds of compilation on a CPU."""

Target = dict[str, Any]

P2, P43 = (operator_name("topk_mask", p) for p in EXPONENTS)


def evaluate(results: dict[str, Any], on_cpu: bool = True) -> list[Target]:
    """Every target with the measured number and PASS, MISS, or ``not measured`` in this run.

    Those of programs are of what is compiled on a CPU: elsewhere the kernels are in them, too.
    """
    return [
        *_times(results["cases"]),
        *_growth(results["scaling"]),
        *_compilations(results),
        *(_programs(results) if on_cpu else ()),
        *_memory(results),
    ]


def _target(name: str, measured: float | None, limit: float, holds: Callable[[float], bool]) -> Target:
    status = "not measured" if measured is None else "PASS" if holds(measured) else "MISS"
    return {"target": name, "measured": measured, "limit": limit, "status": status}


def _times(cases: list[dict[str, Any]]) -> Iterator[Target]:
    by_shape = {Case(case["batch"], case["n"], case["k"]): case["results"] for case in cases}

    def quotient(case: Case, mode: str, ours: str, other: str) -> float | None:
        rows = by_shape.get(case, [])
        a, b = find(rows, ours, mode), find(rows, other, mode)
        return None if a is None or b is None else a["median_ms"] / b["median_ms"]

    def at_most(case: Case, mode: str, ours: str, other: str, limit: float) -> Target:
        name = f"{case} {mode}: {ours} / {other}"
        return _target(name, quotient(case, mode, ours, other), limit, lambda ratio: ratio <= limit)

    wide = Case(128, 1000, 100)
    for mode in MODES:
        yield at_most(wide, mode, P2, BOX_SECTION, 1.0)
    for mode in MODES:
        yield at_most(wide, mode, P43, P2, 2.0)
    for ours in (P2, P43):
        for mode in MODES:
            yield at_most(Case(12800, 400, 28), mode, ours, TOP_K, 1.0)
    long = (Case(1, 25_088, 2508), Case(1, 10**6, 10**5), Case(1, 10**7, 10**6))
    for case in long:
        for ours in (P2, P43):
            for mode in MODES:
                yield at_most(case, mode, ours, TOP_K, 0.2)
    for case in (wide, *long):
        yield at_most(case, FORWARD, "hard_topk_mask", TOP_K, 1.0)


def _growth(growth: dict[str, Any]) -> Iterator[Target]:
    if not growth:
        return
    low, high = min(growth["n"]), max(growth["n"])
    for mode, slope in growth["slope"].items():
        name = f"slope of log time, n = {low:.0e} to {high:.0e}, {mode}: {growth['contestant']}"
        yield _target(name, slope, STEEPEST, lambda slope: slope <= STEEPEST)


def _compilations(results: dict[str, Any]) -> Iterator[Target]:
    counts = results["compilations"]
    total = sum(counts.values()) if counts else None
    yield _target("executables compiled when k or lam change", total, 0, lambda count: count == 0)


def _programs(results: dict[str, Any]) -> Iterator[Target]:
    for way, most in MOST_EQUATIONS.items():
        for operator, mode in itertools.product(("topk_mask", "topk_mag"), MODES):
            name = operator_name(operator, "2")
            row = programs.find(results.get("programs", []), name, mode, way) or {}
            of = f"{name} {mode}, k and lam {way}"
            yield _target(f"equations: {of}", row.get("equations"), most, functools.partial(comparison.gt, most))
            compiled = functools.partial(comparison.gt, MOST_COMPILING)
            yield _target(f"seconds compiled: {of}", row.get("compiled_s"), MOST_COMPILING, compiled)


def _memory(results: dict[str, Any]) -> Iterator[Target]:
    for entry in results["memory"]:
        for mode in (FORWARD, BOTH):
            for kind in ("compiled", "measured"):
                name = f"extra memory in arrays of n = {entry['n']:.0e}, {kind}, {mode}: {entry['contestant']}"
                arrays = entry.get(mode, {}).get(kind)
                yield _target(name, arrays, MOST_ARRAYS, lambda arrays: arrays < MOST_ARRAYS)
