"""Times what this repository computes beside its peers: ``python -m scripts.bench [--only=masks,steps] [--small]``.

Every group of measurements writes a section of ``<results>/<hardware>.json`` after each of its cases, which run in
processes of their own. Cases that the record has of the same code, packages, machine and settings are passed over, so
a command that was stopped goes on where it was; contestants that fail are recorded with the reason, and cost themselves
alone. About 40 minutes on two cores. With ``--device`` what a GPU or TPU is worth timing, in its sizes: no case takes
more than ten minutes, and with ``--minutes`` none is begun that could end later. With ``--small`` everything in tiny
sizes, to see on any machine that it works: kept nowhere, unless ``--results`` says where.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.core import console
from experiments.core.errors import UsageError
from scripts.bench import record
from scripts.bench.process import Case, FailedError, Group, isolated

# By section of the record, the function from a scale (small, cpu or device) to what is measured. Modules are imported
# when they are asked: `--help` answers without the experiments.
GROUPS = {
    "masks": "bench.masks.group",
    "isotonic": "bench.isotonic.times",
    "exactness": "bench.isotonic.errors",
    "steps": "bench.steps.group",
    "router": "bench.training.router",
    "losses": "bench.training.losses",
    "pipeline": "bench.costs.pipeline",
    "pages": "bench.costs.pages",
    "help": "bench.costs.helps",
    "relaxations": "relaxations.measure.group",
}
_ASKED_FOR = "relaxations"  # alone, as it takes an hour
DEVICE = ("steps", "router", "losses", "isotonic", "masks")
_LONGEST = 10.0  # minutes of a case on a device


def main(arguments: Sequence[str]) -> int:
    """Runs the command; 1 if anything failed or was wrong."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench", description=(__doc__ or "").split(":")[0])
    parser.add_argument(
        "--only",
        type=_sections,
        help=f"comma-separated, of {', '.join(GROUPS)}; default: all but the last",
    )
    parser.add_argument("--device", action="store_true", help=f"in sizes of a GPU or TPU: {', '.join(DEVICE)}")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that everything works")
    parser.add_argument("--minutes", type=float, help="begin nothing that could end later (on a GPU)")
    parser.add_argument("--again", action="store_true", help="measure what is in the record, too")
    parser.add_argument("--results", type=Path, default=record.RESULTS, help="directory to write to")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        if options.small and options.results == record.RESULTS:
            options.results = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        return _run(options, ["python", "-m", "scripts.bench", *arguments])


def _sections(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    if unknown := sorted(set(names) - set(GROUPS)):
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; known: {', '.join(GROUPS)}")
    return names


def group_of(name: str, scale: str) -> Group:
    """The group of a section at a scale."""
    module, _, function = GROUPS[name].rpartition(".")
    found: Group = getattr(importlib.import_module(f"scripts.{module}"), function)(scale)
    return found


def _run(options: argparse.Namespace, command: Sequence[str]) -> int:
    start = time.monotonic()
    try:  # in a process of its own: while this one held the device, others could not have it
        environment = isolated(functools.partial(record.surroundings, command), 2.0)
    except FailedError as error:
        raise UsageError(f"JAX finds no device: {error}") from None
    on_cpu = environment["devices"]["platform"] == "cpu"
    if options.device and on_cpu and not options.small:
        raise UsageError(
            "JAX finds a CPU only, on which this takes hours: wanted is a GPU or TPU with a driver that works and JAX "
            "for it (make bench-gpu JAX=cuda13, or tpu); --small tries everything on any machine"
        )
    scale = "small" if options.small else "cpu" if on_cpu else "device"
    path = record.path_of(options.results, environment)
    left: list[str] = []
    failed: list[str] = []
    usual = DEVICE if options.device else [name for name in GROUPS if name != _ASKED_FOR]
    for name in options.only or usual:
        group, section_name = group_of(name, scale), name + "-small" * options.small
        section = record.begin(path, section_name, environment, group.settings, options.again)
        for case in group.cases:
            if case.name in section["measured"]:
                continue
            passed = (time.monotonic() - start) / 60
            if options.minutes is not None and passed + case.minutes > options.minutes:
                left.append(f"{name}, {case.name} ({case.minutes:g} minutes)")
                continue
            print(f"{name}: {case.name}", flush=True)
            found = _measured(case, _LONGEST if scale == "device" else None)
            print(*lines(found), sep="\n", flush=True)
            record.add(section, case.name, found)
            section["complete"] = len(section["measured"]) == len(group.cases)
            record.write(path, section_name, section)
        failed += [f"{name}: {who}: {reason}" for who, reason in _failures(section)]
    for what in left:
        print(f"no time was left for {what}: the same command goes on with it")
    for what in failed:
        print(f"failed: {what}", file=sys.stderr)
    print("everything was tried" if options.small else f"results are in {path}")
    return int(bool(failed))


def _measured(case: Case, minutes: float | None) -> dict[str, Any]:
    try:
        return isolated(case.measure, minutes)
    except FailedError as error:
        return {"failed": {case.name: str(error)}}


def _failures(section: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Whatever failed, or is over a limit, and the reason."""
    yield from section["failed"].items()
    yield from section.get("over_limits", {}).items()
    for case in section.get("cases", []):
        for row in case["results"]:
            if row["status"] == "failed":
                yield f"({case['batch']}, {case['n']}, {case['k']}) {row['contestant']}", row["reason"]


def lines(found: Any, indent: str = "  ") -> Iterator[str]:
    """Shows what a case found: a line for every row, whatever its fields are called."""
    for key, value in found.items() if isinstance(found, Mapping) else enumerate(found):
        label = f"{indent}{key}: " if isinstance(found, Mapping) else indent
        if isinstance(value, Mapping) and any(not isinstance(each, Mapping | list) for each in value.values()):
            yield label + ", ".join(f"{name} {each}" for name, each in _fields(value))
            yield from lines({name: each for name, each in value.items() if isinstance(each, list)}, indent + "  ")
        elif isinstance(value, Mapping | list):
            yield from [label] * bool(value and label.strip())
            yield from lines(value, indent + "  ")
        else:
            yield label + str(value)


def _fields(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of a row that are known, those of a part of it after its name."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from ((f"{name} {part}", number) for part, number in _fields(value))
        elif value is not None and not isinstance(value, list):
            yield name, f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    console.run(main)
