"""The README of results/accelerators/, made of its records."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.core.record.files import write_atomically
from scripts import sections
from scripts.aot import hardware, operator_tables, operators, step_tables, wanted

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

In float32 on one device. *Kernels*: outside loops, and in a round of the solver's, where a loop solves. *Moved*: bytes
from and to the main memory, outside loops and in a round, over one read and one write of the entries. *Passes*: bytes
that a round reads and writes over those of the data, on the chip included. *Memory*: temporary, over the data. *Code*
is the commit that was compiled last; a program that is the same at a later one is not compiled again. Seconds are those
of two cores that other jobs had a share of, or nearly all. An operator without a row for a chip has not been compiled
for it yet.
"""
_MASK = """One `topk_mask` at p = 2, its value alone: kernels; bytes moved. Where rows fit on the chip, one solves and
the others bring the entries there and back. The H200's rows of a million and more are of several programs to a row,
which are no more: since then one program solves rows of up to 1,048,576 entries there, and the loop longer ones."""
_STEPS = """
## Training steps at full size

A device's memory against what it has, what it sends in a step, and the least time of a step; *code* is the commit that
was compiled.
"""


def write(results: Path) -> Path:
    """Writes `results`/README.md; returns its path."""
    path = results / "README.md"
    results.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "\n".join(_lines(results)) + "\n")
    return path


def _lines(results: Path) -> Iterator[str]:
    chips = [sections.read(path) or {} for path in sorted(results.glob("*.json"))]
    of_operators = [chip["operators"] for chip in chips if "operators" in chip]
    named = {name: step for chip in chips for name, step in chip.get("steps", {}).items()}
    steps = [named[name] for name in sorted(named)]
    rounds = next((document["rounds"] for document in steps), 9.0)
    yield _INTRO.format(rounds=rounds).rstrip()
    if steps:
        yield _STEPS.rstrip()
        yield ""
        yield from step_tables.steps_table(steps)
        yield from step_tables.to_other_slices(steps)
        yield from step_tables.what_helps(steps)
        yield from step_tables.shares(steps)
        yield from step_tables.scaling(steps)
    if of_operators:
        yield _OPERATORS.rstrip()
        if table := list(operator_tables.mask_table(of_operators)):
            yield from ("", _MASK, "", *table)
        for document in of_operators:
            yield ""
            yield from operator_tables.operators_table(document)
    yield from _missing(of_operators, steps)


def _missing(of_operators: Sequence[dict[str, Any]], steps: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What `check` would compile besides, and nothing is known of."""
    known = {(one["name"], one["type"]) for one in steps}
    left: dict[str, list[str]] = {}
    for run in wanted.RUNS:
        left.setdefault(run.name, []).extend(type_ for type_ in run.types if (run.name, type_) not in known)
    lines = [f"- {name}: {', '.join(types)}" for name, types in left.items() if types]
    cases = {document["rates"]["device"]: set(document["cases"]) for document in of_operators}
    programs = list(operators.every(list(operators.CALLS), operators.SIZES))
    for type_ in wanted.CHIPS:
        chip = hardware.parse(type_).device.name
        first = {case.key for case in programs if any(_asks(sweep, type_, case) for sweep in wanted.OPERATORS)}
        if count := len(first - cases.get(chip, set())):
            lines.append(f"- operators for {chip}: {count} of {len(first)} programs")
    if lines:
        yield from ("", "## Not compiled yet", "", "`make check-accelerators` goes on with these:", "", *lines)
    known_programs = sum(map(len, cases.values()))
    yield ""
    yield (
        f"With `EVERYTHING=1`, values alone and every dtype, length and division: {known_programs} of "
        f"{len(wanted.CHIPS) * len(programs)} programs are compiled."
    )


def _asks(sweep: wanted.Operators, type_: str, case: operators.Case) -> bool:
    return (
        type_ in sweep.types
        and (case.dtype, case.mode, bool(case.divided)) == (sweep.dtype, sweep.mode, sweep.divided)
        and (not sweep.names or case.operator in sweep.names)
        and (not sweep.lengths or case.size.n in sweep.lengths)
    )
