"""Reads what runs leave behind: the workdirs below a directory, whole or broken."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.core import metrics
from experiments.core.metrics import Row
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
        """The values of a metric after the last epoch, by seed."""
        return self.summary["final"][metric]["per_seed"]


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


def _read(path: Path, name: str) -> Run:
    workdir = Workdir(path)
    if not workdir.config.exists():
        raise _BrokenError("config.json is missing")
    config = json.loads(workdir.config.read_text())
    rows = metrics.read(workdir.metrics)
    if not rows:
        raise _BrokenError("metrics.jsonl is missing or empty")
    if not workdir.summary.exists():
        raise _BrokenError(f"unfinished: epoch {rows[-1]['epoch']} of {config['epochs']}")
    summary = json.loads(workdir.summary.read_text())
    run = Run(name, config, rows, summary)
    if rows[-1]["epoch"] != config["epochs"] or run.final("hardened_error") != rows[-1]["hardened_error"]:
        raise _BrokenError("summary.json does not belong to the last row of metrics.jsonl")
    return run
