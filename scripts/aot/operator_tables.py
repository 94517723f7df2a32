"""Tables of the operators that were compiled for a chip."""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from experiments.core.report.markdown import line
from scripts.aot import record
from scripts.aot.operators import GRADIENT, PARTS, SIZES, VALUE

Row = dict[str, Any]
Columns = Mapping[str, Callable[[Row], str]]


def mask_table(documents: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What one relaxed mask needs on every chip: a row for each, a column for each shape; of chips that have any."""
    heads: list[tuple[int, int]] = [(size.rows, size.n) for size in SIZES]
    rows = []
    for document in documents:
        known = {
            (case["rows"], case["n"]): case
            for case in document["cases"].values()
            if case["compiles"] and case["operator"] == "topk_mask" and _kind(case) == ("float32", VALUE, "")
        }
        if known:
            cells = [_launches(known[shape]) if shape in known else "-" for shape in heads]
            rows.append([document["rates"]["device"], *cells])
    if rows:
        yield line(["chip", *map(str, heads)])
        yield line(["---"] + ["---:"] * len(heads))
        yield from map(line, rows)


def _launches(case: Row) -> str:
    """Kernels and bytes, as ``4; 1.50`` or, with a loop, ``15 + 3 a round; 3.00 + 1.00 a round``."""
    amounts = {name: _MOVED[name](case) for name in ("kernels", "in a round", "moved", "moved in a round")}
    pairs = (("kernels", "in a round"), ("moved", "moved in a round"))
    return "; ".join(
        amounts[once] + (f" + {amounts[again]} a round" if amounts[again] != "-" else "") for once, again in pairs
    )


def operators_table(document: dict[str, Any]) -> Iterator[str]:
    """Of a chip: operators by the shapes they were compiled at, and what failed."""
    cases = list(document["cases"].values())
    compiled = sum(case["compiles"] for case in cases)
    versions = ", ".join(f"{name} {version}" for name, version in document["compilers"].items())
    device = document["rates"]["device"]
    yield f"### {device}: {compiled} of {len(cases)} programs compile ({versions}; code {record.commit(document)})"
    yield ""
    yield _by_kind(cases)
    yield from _failures(cases)
    alone, with_gradient = (
        [case for case in cases if case["compiles"] and _kind(case) == ("float32", mode, "")]
        for mode in (VALUE, GRADIENT)
    )
    yield from ("", "<details><summary>All operators</summary>")
    yield from _table("Value alone", _MOVED, alone)
    yield from _table("Value and gradient", _NEEDED, with_gradient)
    yield from ("", "</details>")


def _in_rounds(case: Row, cell: Callable[[Row], str]) -> str:
    """A cell for each of the loops that go on until their data are done."""
    return " + ".join(cell(loop) for loop in case["loops"] if loop["rounds"] is None) or "-"


def _host(case: Row) -> str:
    in_rounds = sum(loop["host"] for loop in case["loops"] if loop["rounds"] is None)
    return str(case["host_round_trips_outside_loops"] + in_rounds)


# Columns that both tables have, at their beginning and at their end, and those of each: heads, and cells of a case.
_SHAPE: Columns = {
    "operator": lambda case: f"`{case['operator']}`",
    "shape": lambda case: f"({case['rows']}, {case['n']})",
    "kernels": lambda case: str(case["kernels_outside_loops"]),
    "in a round": lambda case: _in_rounds(case, lambda loop: str(loop["kernels"])),
}
_COMPILED: Columns = {"compiled in, s": lambda case: f"{case['compile_seconds']:.1f}"}
_MOVED: Columns = {
    **_SHAPE,
    "moved": lambda case: f"{case['main_memory_passes_outside_loops'] / 2:.2f}",  # over one read and one write
    "moved in a round": lambda case: _in_rounds(case, lambda loop: f"{loop['main_memory_passes'] / 2:.2f}"),
    **_COMPILED,
}
_NEEDED: Columns = {
    **_SHAPE,
    "passes in a round": lambda case: _in_rounds(case, lambda loop: f"{loop['passes']:.2f}"),
    "memory": lambda case: f"{case['temporary_over_data']:.2f}",
    "sorts": lambda case: str(case["sorts"]),
    "gathers": lambda case: str(case["gathers"]),
    "host": _host,
    **_COMPILED,
}


def _table(title: str, columns: Columns, cases: Sequence[Row]) -> Iterator[str]:
    """A row for each case, by operator and size; nothing without any."""
    if not cases:
        return
    yield from ("", f"{title}:", "")
    yield line(list(columns))
    yield line(["---"] * 2 + ["---:"] * (len(columns) - 2))
    for case in sorted(cases, key=lambda case: (case["operator"], case["rows"] * case["n"])):
        yield line([cell(case) for cell in columns.values()])


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
