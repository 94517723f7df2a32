"""Reads what runs leave behind: the workdirs below a directory, whole or broken."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.core import metrics
from experiments.core.metrics import Row
from experiments.core.summary import PROGRESS
from experiments.core.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
      name: its path below the directory read.
      config: as in config.json.
      rows: of metrics.jsonl.
      summary: as in summary.json.
    """

    name: str
    config: dict[str, Any]
    rows: list[Row]
    summary: dict[str, Any]

    def final(self, metric: str) -> list[float | None]:
        """The values of a metric at the end, by seed; nested ones as `test_accuracy/1`."""
        return _final_values(self.summary)[metric]


@dataclasses.dataclass(frozen=True)
class Problem:
    """A workdir that cannot be used, and why."""

    name: str
    reason: str


def load(directory: Path) -> tuple[list[Run], list[Problem]]:
    """All runs below `directory`, by name; those unfinished or broken as problems."""
    runs, problems = [], []
    for path in _workdirs(directory):
        name = str(path.relative_to(directory))
        try:
            runs.append(_read(path, name))
        except _BrokenError as error:
            problems.append(Problem(name, str(error)))
        except (ValueError, KeyError, TypeError, OSError) as error:
            problems.append(Problem(name, f"unreadable: {type(error).__name__}: {error}"))
    return runs, problems


class _BrokenError(Exception):
    """With the reason as its message."""


def _workdirs(directory: Path) -> Iterable[Path]:
    marks = ("config.json", "metrics.jsonl", "summary.json")
    found = {path.parent for mark in marks for path in directory.rglob(mark)}
    return sorted(found, key=lambda path: str(path.relative_to(directory)))


def length(config: dict[str, Any]) -> tuple[str, int]:
    """What a run is counted in, "epoch" or "step", and how many of them it is to be long."""
    unit = "step" if "steps" in config and config["steps"] is not None else "epoch"
    return unit, config[f"{unit}s"]


def _final_values(summary: dict[str, Any]) -> dict[str, list[float | None]]:
    """Of every metric."""
    suffix = "/per_seed"
    return {
        name.removesuffix(suffix): values for name, values in metrics.flatten(summary["final"]) if name.endswith(suffix)
    }


def _values(row: Row) -> dict[str, list[float | None]]:
    """Of every metric."""
    return dict(metrics.flatten({name: value for name, value in row.items() if name not in PROGRESS}))


def _read(path: Path, name: str) -> Run:
    workdir = Workdir(path)
    if not workdir.config.exists():
        raise _BrokenError("config.json is missing")
    config = json.loads(workdir.config.read_text())
    rows = metrics.read(workdir.metrics)
    if not rows:
        raise _BrokenError("metrics.jsonl is missing or empty")
    unit, total = length(config)
    last = rows[-1]
    if not workdir.summary.exists():
        raise _BrokenError(f"unfinished: {unit} {last[unit]} of {total}")
    summary = json.loads(workdir.summary.read_text())
    if (last[unit], last["step"]) != (total, summary["steps"]) or _values(last) != _final_values(summary):
        raise _BrokenError("summary.json does not belong to the last row of metrics.jsonl")
    return Run(name, config, rows, summary)
