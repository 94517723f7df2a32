"""Tables of the operators that were compiled for a chip."""

import collections
from collections.abc import Iterator, Sequence
from typing import Any

from experiments.core.report.markdown import line
from scripts.aot.operators import GRADIENT, PARTS, VALUE

Row = dict[str, Any]


def operators_table(document: dict[str, Any]) -> Iterator[str]:
    """Of a chip: operators by the shapes they were compiled at, and what failed."""
    cases = list(document["cases"].values())
    compiled = sum(case["compiles"] for case in cases)
    versions = ", ".join(f"{name} {version}" for name, version in document["compilers"].items())
    yield f"### {document['rates']['device']}: {compiled} of {len(cases)} programs compile ({versions})"
    yield ""
    yield _by_kind(cases)
    yield from _failures(cases)
    yield from _launches([case for case in cases if case["compiles"] and _kind(case) == ("float32", VALUE, "")])
    shown = [case for case in cases if case["compiles"] and _kind(case) == ("float32", GRADIENT, "")]
    if not shown:
        return
    yield ""
    yield "Value and gradient:"
    yield ""
    yield line(("operator", "shape", "kernels", "in a round", "passes in a round", "memory", "sorts", "gathers",
                "host", "compiled in, s"))  # fmt: skip
    yield line(["---"] * 2 + ["---:"] * 8)
    for case in sorted(shown, key=lambda case: (case["operator"], case["rows"] * case["n"])):
        loops = [loop for loop in case["loops"] if loop["rounds"] is None]
        yield line(
            [
                f"`{case['operator']}`",
                f"({case['rows']}, {case['n']})",
                str(case["kernels_outside_loops"]),
                " + ".join(str(loop["kernels"]) for loop in loops) or "-",
                " + ".join(f"{loop['passes']:.2f}" for loop in loops) or "-",
                f"{case['temporary_over_data']:.2f}",
                str(case["sorts"]),
                str(case["gathers"]),
                str(case["host_round_trips_outside_loops"] + sum(loop["host"] for loop in loops)),
                f"{case['compile_seconds']:.1f}",
            ]
        )


def _kind(case: Row) -> tuple[str, str, str]:
    return case["dtype"], case["mode"], case["divided"]


def _by_kind(cases: Sequence[Row]) -> str:
    """How many there are of each kind."""
    counts = collections.Counter(_kind(case) for case in cases)
    return "Of them: " + "; ".join(
        f"{count} of {mode} in {dtype}{f', {divided} divided over {PARTS} devices' if divided else ''}"
        for (dtype, mode, divided), count in sorted(counts.items(), reverse=True)
    )


def _failures(cases: Sequence[Row]) -> Iterator[str]:
    failed = [case for case in cases if not case["compiles"]]
    if failed:
        yield ""
    for case in failed:
        where = f", {case['divided']} divided over {PARTS} devices" if case["divided"] else ""
        what = f"`{case['operator']}`, {case['mode']}, {case['dtype']}, ({case['rows']}, {case['n']}){where}"
        yield f"- **fails**: {what}: {case['error']}"


def _launches(cases: Sequence[Row]) -> Iterator[str]:
    """Of values: kernels, and bytes over those of one read and one write."""
    if not cases:
        return
    yield ""
    yield "Value alone:"
    yield ""
    yield line(("operator", "shape", "kernels", "in a round", "moved", "moved in a round", "compiled in, s"))
    yield line(["---"] * 2 + ["---:"] * 5)
    for case in sorted(cases, key=lambda case: (case["operator"], case["rows"] * case["n"])):
        loops = [loop for loop in case["loops"] if loop["rounds"] is None]
        yield line(
            [
                f"`{case['operator']}`",
                f"({case['rows']}, {case['n']})",
                str(case["kernels_outside_loops"]),
                " + ".join(str(loop["kernels"]) for loop in loops) or "-",
                f"{case['main_memory_passes_outside_loops'] / 2:.2f}",
                " + ".join(f"{loop['main_memory_passes'] / 2:.2f}" for loop in loops) or "-",
                f"{case['compile_seconds']:.1f}",
            ]
        )
