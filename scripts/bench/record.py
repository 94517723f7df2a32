"""What the commands of the benchmarks have in common: their options, and the record that each of them writes."""

import argparse
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from experiments.core.record.environment import Launch, describe
from experiments.core.record.files import write_json

_RESULTS = Path("results/bench")


def parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """Of ``python -m <module>``, whose docstring begins with what it does and a colon."""
    return argparse.ArgumentParser(prog=f"python -m {module}", description=(doc or "").split(":")[0])


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str], harmless: Collection[str] = ()
) -> argparse.Namespace:
    """The options, with the directory for the record as the last one.

    Where that is not given the records of the default settings are, which those of no others may replace: what changes
    them is refused, but for ``seconds``, which only makes times more exact, and what is ``harmless``, as it is in the
    name of the record.
    """
    parser.add_argument(
        "--results", type=Path, help=f"directory to write to; left out: {_RESULTS}, for the default settings alone"
    )
    options = parser.parse_args(arguments)
    if options.results is None:
        options.results = _RESULTS
        for name, value in vars(options).items():
            if name not in ("results", "seconds", *harmless) and value != parser.get_default(name):
                parser.error(
                    f"--{name}: the records in {_RESULTS} are of the default, {parser.get_default(name)}, and one of "
                    f"{value} would replace them: --results must say where to write it"
                )
    return options


def begin(module: str, arguments: Sequence[str], results: Path) -> dict[str, Any]:
    """Makes the directory, before anything is timed, and returns what the record says of machine and command."""
    results.mkdir(parents=True, exist_ok=True)
    return describe(Launch(command=["python", "-m", module, *arguments]))


def write(results: Path, name: str, environment: dict[str, Any], document: dict[str, Any]) -> Path:
    """Writes the record, ``<results>/<name>.json``; ``{hardware}`` in the name is filled in. Returns the path."""
    path = results / f"{name.format(hardware=hardware_name(environment))}.json"
    write_json(path, {"environment": environment} | document)
    return path


def hardware_name(environment: dict[str, Any]) -> str:
    """A file name for the machine: its CPU and cores, or its accelerator."""
    platform, machine, devices = environment["devices"]["platform"], environment["machine"], environment["devices"]
    if platform == "cpu":
        words = ["cpu", machine["cpu"] or "unknown", f"{machine['cores']}c"]
    else:
        words = [platform, devices["kind"]]
    return "-".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words)


def load_average() -> list[float] | None:
    """Of the machine, over 1, 5 and 15 minutes, where it is known."""
    return list(os.getloadavg()) if hasattr(os, "getloadavg") else None
