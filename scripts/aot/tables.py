"""The README of results/accelerators/, made of its records."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.core.record.files import write_atomically
from experiments.core.report.markdown import line
from scripts.aot import record

_INTRO = """# Compiled for accelerators

`make check-accelerators` compiles the operators and the experiments' own training steps for TPUs and GPUs that are not
there, by their real compilers (TPU's is in the package libtpu, XLA's for GPUs in jax's CUDA plugin). What is here is
what the compilers say. **Nothing of it is measured**: times are computed from the chips' published rates, and no run is
faster. This page is made of the JSON files beside it by `python -m scripts.aot tables`.

*Least time* is the longest of three, as if they went on all at once at full rate: matrix products at the chip's
bfloat16 rate; bytes that kernels read and write in the main memory; bytes that a chip sends. Loops count as often as
they go round, those whose rounds the data decide, the solvers', {rounds:g} times.
"""
_OPERATORS = """
## Operators

Value and gradient in float32 on one device. *Kernels*: outside loops, and in a round of the solver's. *Passes*: bytes
that a round reads and writes over those of the data, on the chip included. *Memory*: temporary, over the data.
"""
_STEPS = """
## Training steps at full size

A device's memory against what it has, what it sends in a step, and the least time of a step.
"""


_PAIRS = (("relaxed", "hard"), ("top-3", "cross-entropy"))


def write(results: Path) -> Path:
    """Writes `results`/README.md; returns its path."""
    path = results / "README.md"
    results.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "\n".join(_lines(results)) + "\n")
    return path


def _lines(results: Path) -> Iterator[str]:
    operators = [record.read(path) or {} for path in sorted(results.glob("operators-*.json"))]
    steps = [record.read(path) or {} for path in sorted(results.glob("steps/*.json"))]
    rounds = next((document["rounds"] for document in steps), 9.0)
    yield _INTRO.format(rounds=rounds).rstrip()
    if steps:
        yield _STEPS.rstrip()
        yield ""
        yield from steps_table(steps)
        yield from _shares(steps)
    if operators:
        yield _OPERATORS.rstrip()
        for document in operators:
            yield ""
            yield from operators_table(document)


def steps_table(documents: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A row for each step."""
    yield line(("run", "type", "mesh", "memory, GB", "fits", "sent, MB", "compute, ms", "memory, ms",
                "interconnect, ms", "least, ms", "MFU at most"))  # fmt: skip
    yield line(["---"] * 3 + ["---:"] + ["---"] + ["---:"] * 6)
    for document in sorted(documents, key=lambda one: (one["name"], one["rates"]["device"], one["devices"])):
        train = document["train"]
        mesh = ", ".join(f"{axis} {size}" for axis, size in document["mesh"].items() if size > 1) or "one"
        start = [document["name"], document["type"], mesh]
        if "memory" not in train:
            needed = f"{train['needed_bytes'] / 1e9:.1f} of {train['available_bytes'] / 1e9:.1f}"
            yield line([*start, needed, "**no**", *["-"] * 6])
            continue
        memory, least = train["memory"], train["roofline"]
        yield line(
            [
                *start,
                f"{memory['peak'] / 1e9:.2f} of {memory['available'] / 1e9:.1f}",
                "yes" if train["fits"] else "**no**",
                f"{train['sent_bytes'] / 1e6:.1f}",
                *(
                    f"{1e3 * least[part]:.2f}"
                    for part in ("compute_seconds", "memory_seconds", "interconnect_seconds", "least_seconds")
                ),
                f"{100 * train['mfu_at_most']:.0f} %" if "mfu_at_most" in train else "-",
            ]
        )


def _shares(documents: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Of the steps that the paper compares: relaxed over hard router, top-3 loss over cross-entropy."""
    by_name = {(one["name"], one["type"]): one["train"] for one in documents if "memory" in one["train"]}
    rows = []
    for (name, type_), relaxed in by_name.items():
        hard = next(
            (found for new, old in _PAIRS if new in name and (found := by_name.get((name.replace(new, old), type_)))),
            None,
        )
        if hard:
            over = [relaxed[count] / hard[count] for count in ("operations_in_bfloat16", "bytes", "sent_bytes")]
            over.append(relaxed["roofline"]["least_seconds"] / hard["roofline"]["least_seconds"])
            rows.append(line([name, type_, *(f"{ratio:.4f}" for ratio in over)]))
    if rows:
        yield ""
        yield "Of the relaxed router's step over the hard one's, and of the top-3 loss's over cross-entropy's:"
        yield ""
        yield line(("run", "type", "operations", "bytes", "sent", "least time"))
        yield line(["---"] * 2 + ["---:"] * 4)
        yield from sorted(rows)


def operators_table(document: dict[str, Any]) -> Iterator[str]:
    """Of a chip: operators by the shapes they were compiled at, and what failed."""
    cases = list(document["cases"].values())
    compiled = sum(case["compiles"] for case in cases)
    versions = ", ".join(f"{name} {version}" for name, version in document["compilers"].items())
    yield f"### {document['rates']['device']}: {compiled} of {len(cases)} programs compile ({versions})"
    yield ""
    for case in cases:
        if not case["compiles"]:
            where = f", {case['divided']} over 8" if case["divided"] else ""
            name = f"`{case['operator']}`, {case['dtype']}, ({case['rows']}, {case['n']}){where}"
            yield f"- **fails**: {name}: {case['error']}"
    shown = [
        case
        for case in cases
        if case["compiles"] and (case["dtype"], case["mode"], case["divided"]) == ("float32", "value and gradient", "")
    ]
    if not shown:
        return
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
