"""Times what this repository computes beside its peers: ``python -m scripts.bench [--only=masks,steps] [--small]``.

Every group of measurements writes a section of ``<results>/<hardware>.json`` after each of its cases, which run in
processes of their own. Cases that the record has of the same code, packages, machine and settings are passed over, so
a command that was stopped goes on where it was; contestants that fail are recorded with the reason, and cost themselves
alone. About 40 minutes on two cores. With ``--device`` what a GPU or TPU is worth timing, in its sizes: no case takes
more than ten minutes, and with ``--minutes`` none is begun that could end later. With ``--small`` everything in tiny
sizes, to see that it works: kept nowhere, unless ``--results`` says where.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import pprint
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.core import console
from experiments.core.errors import UsageError
from scripts.bench import record
from scripts.bench.process import FailedError, Group, isolated

# By section of the record, the function from a scale (small, cpu or device) to what is measured. Modules are imported
# when they are asked: `--help` answers without the experiments.
GROUPS = {
    "masks": "bench.masks.group",
    "isotonic": "bench.isotonic.times",
    "exactness": "bench.isotonic.errors",
    "steps": "bench.steps.group",
    "router": "bench.training.router",
    "losses": "bench.training.losses",
    "attention": "bench.attention.group",
}
DEVICE = ("steps", "router", "losses", "isotonic", "masks", "attention")
_LONGEST = 10.0  # minutes of a case on a device


def main(arguments: Sequence[str]) -> int:
    """Runs the command; 1 if anything failed or was wrong."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--only", help=f"comma-separated, of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--device", action="store_true", help=f"in sizes of a GPU or TPU: {', '.join(DEVICE)}")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that everything works")
    parser.add_argument("--minutes", type=float, help="begin nothing that could end later (on a GPU)")
    parser.add_argument("--results", type=Path, help=f"directory to write to ({record.RESULTS})")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        options.results = options.results or (Path(scratch) if options.small else record.RESULTS)
        return _run(options, arguments)


def group_of(name: str, scale: str) -> Group:
    """The group of a section at a scale."""
    module, _, function = GROUPS[name].rpartition(".")
    group: Group = getattr(importlib.import_module(f"scripts.{module}"), function)(scale)
    return group


def _run(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    start = time.monotonic()
    names = options.only.split(",") if options.only else DEVICE if options.device else list(GROUPS)
    if unknown := sorted(set(names) - set(GROUPS)):
        raise UsageError(f"--only: unknown {', '.join(unknown)}; known: {', '.join(GROUPS)}")
    try:  # in a process of its own: while this one held the device, others could not have it
        environment = isolated(functools.partial(record.surroundings, arguments), 2.0)
    except FailedError as error:
        raise UsageError(f"JAX finds no device: {error}") from None
    on_cpu = environment["devices"]["platform"] == "cpu"
    if options.device and on_cpu and not options.small:
        raise UsageError(
            "JAX finds a CPU only, on which this takes hours: it needs a GPU or TPU, and JAX for that (make bench-gpu "
            "JAX=cuda13, or tpu); --small tries everything on any machine"
        )
    scale = "small" if options.small else "cpu" if on_cpu else "device"
    path = record.path_of(options.results, environment)
    failed: list[str] = []
    for name in names:
        group, section_name = group_of(name, scale), name + "-small" * options.small
        section = record.begin(path, section_name, environment, group.settings)
        for case in group.cases:
            if case.name in section["measured"]:
                continue
            passed = (time.monotonic() - start) / 60
            if options.minutes is not None and passed + case.minutes > options.minutes:
                what = f"{name}, {case.name} ({case.minutes:g} minutes)"
                print(f"no time is left for {what}: the same command goes on with it", flush=True)
                continue
            print(f"{name}: {case.name}", flush=True)
            try:
                result = isolated(case.measure, _LONGEST if scale == "device" else None)
            except FailedError as error:
                result = {"failed": {case.name: str(error)}}
            short = json.loads(json.dumps(result), parse_float=lambda number: float(f"{float(number):.4g}"))
            pprint.pp(short, width=160)
            record.add(section, case.name, result)
            section["complete"] = len(section["measured"]) == len(group.cases)
            record.write(path, section_name, section)
        failed += [f"{name}: {who}: {reason}" for who, reason in _failures(section)]
    for what in failed:
        print(f"failed: {what}", file=sys.stderr)
    print("everything was tried" if options.small else f"results are in {path}")
    return int(bool(failed))


def _failures(section: record.Section) -> Iterator[tuple[str, str]]:
    """Whatever failed, and the reason."""
    yield from section["failed"].items()
    for case in section.get("cases", []):
        for row in case["results"]:
            if row["status"] == "failed":
                yield f"({case['batch']}, {case['n']}, {case['k']}) {row['contestant']}", row["reason"]


if __name__ == "__main__":
    console.run(main)
