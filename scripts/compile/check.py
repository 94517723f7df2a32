"""Compiles every operator for every chip, and the experiments' full-size train steps: one table of what fits.

Each chip's operators and each step are compiled in a process of their own, by the Python that has their compiler. What
has been compiled is kept in runs/compiled, so that a check that was stopped goes on where it was.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from experiments.core.record import chips
from experiments.core.report.markdown import line
from scripts.compile import compiler
from scripts.compile.step import size_of


class Step(NamedTuple):
    """A train step at full size: its arguments, and the types on which it fits and on which it is too large."""

    name: str
    arguments: tuple[str, ...]
    fits: tuple[str, ...]
    too_large: tuple[str, ...] = ()


_VIT = ("cifar100_vit", "--config=configs/cifar100_vit.py:loss=topk")
_RELAXED, _HARD, _LARGER = (
    ("vmoe", f"--config=configs/vmoe.py:router={router}", "--config.mesh.expert=4")
    for router in ("relaxed", "hard", "relaxed,size=B/16")
)
STEPS = (
    Step("ViT-B/16 top-3", _VIT, ("v5litepod-16", "v6e-16", "h200-8")),
    Step("ViT-B/16 top-3 without remat", (*_VIT, "--config.model.remat=False"), ("h200-8",), ("v5litepod-16",)),
    Step("V-MoE S/32 relaxed", _RELAXED, ("v5litepod-64", "v6e-16", "h200-8")),
    Step("V-MoE S/32 hard", _HARD, ("v5litepod-64", "v6e-16", "h200-8")),
    Step("V-MoE B/16 relaxed", _LARGER, ("v5litepod-16", "h200-8"), ("v5litepod-8",)),
)


def commands(types: Sequence[str] = ()) -> Iterator[tuple[str, str, bool, list[str]]]:
    """Yields name, type, whether it should fit, and arguments of every process, for the chips of some types or all.

    Raises:
      UsageError: a type is unknown.
    """
    wanted = {chips.parse(type_).chip for type_ in types or chips.SHORT}
    every = [("operators", type_, True, ["operators"]) for type_ in chips.SHORT]
    for step in STEPS:
        for type_ in (*step.fits, *step.too_large):
            every.append((step.name, type_, type_ in step.fits, [*step.arguments, "--no_evaluation"]))
    for name, type_, fits, arguments in every:
        if chips.parse(type_).chip in wanted:
            yield name, type_, fits, [*arguments, f"--type={type_}", "--json"]


def go(types: Sequence[str]) -> int:
    """Runs all processes and prints the table; returns 1 if a program does not compile, or fits where it should not."""
    cells: dict[str, dict[str, str]] = {}
    failed = []
    todo = list(commands(types))
    for number, (name, type_, fits, arguments) in enumerate(todo, 1):
        print(f"[{number}/{len(todo)}] {name} for {type_}", flush=True)
        slice_, last = chips.parse(type_), ""
        command = [sys.executable, "-m", "scripts.compile", *arguments]
        with subprocess.Popen(command, cwd=compiler.ROOT, stdout=subprocess.PIPE, text=True) as process:
            for row in map(json.loads, process.stdout or ()):
                last = row.get("program") or f"{name}, {slice_.count} devices"
                why = "; ".join([*row.get("warnings", ()), *([row["error"]] if "error" in row else ())])
                cell = cells.setdefault(last, {})[slice_.chip.name] = _cell(row)
                print(f"  {last}: {cell} {why}".rstrip(), flush=True)
                if why or row["fits"] != fits:
                    failed.append(f"{last} for {type_}: {why or cell}")
        if process.returncode not in (0, 1, 3):  # 1: operators that fail, 3: a step that does not fit, said above
            failed.append(f"{name} for {type_}: exit status {process.returncode}, last done: {last or 'none'}")
    known = list(dict.fromkeys(chip for row in cells.values() for chip in row))
    print(line(["program", *known]), line(["---", *["---:"] * len(known)]), sep="\n")
    print(*(line([name, *(row.get(chip, "-") for chip in known)]) for name, row in cells.items()), sep="\n")
    for failure in failed:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failed else 0


def _cell(row: dict[str, Any]) -> str:
    """Formats the memory that a program needs on a device."""
    if "error" in row:
        return "FAILS"
    needed = size_of(row["needed"])
    return needed if row["fits"] else f"does not fit: {needed} of {size_of(row['available'])}"
