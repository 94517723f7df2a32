"""Finds the runs to compare, and reads them one at a time: the rows of hundreds do not fit in memory as JSON."""

import dataclasses
import gc
from collections.abc import Sequence
from pathlib import Path

from experiments.core.report.results import UNREADABLE, Problem, Run, read
from scripts.compare import presentations, remote
from scripts.compare.series import Series
from scripts.report import RESULTS


@dataclasses.dataclass(frozen=True)
class Found:
    """Runs found in several places.

    Attributes:
      runs: without rows and arrays, each under a name of its own.
      series: their rows, by the name of the run.
      problems: the workdirs and places left out.
      committed: the names of the runs that are among the results of this repository.
    """

    runs: list[Run]
    series: dict[str, Series]
    problems: list[Problem]
    committed: set[str] = dataclasses.field(default_factory=set)


def find(places: Sequence[str]) -> Found:
    """The runs in or below each place: a directory, or the URL of one.

    Broken, empty and foreign ones are problems, and the rest is read.
    """
    found = Found([], {}, [])
    several = len(set(places)) > 1
    gc.disable()  # rows are millions of small objects, and looking for cycles among them would take most of the time
    for place in dict.fromkeys(places):
        try:
            with remote.local(place) as directory:
                _add(found, directory, place, place.rstrip("/") if several else "")
        except remote.NotFoundError as error:
            found.problems.append(Problem(place, str(error)))
    gc.enable()
    return found


def _add(found: Found, directory: Path, place: str, prefix: str) -> None:
    """Adds the runs below `directory`, where `place` is or was copied to; `prefix` is what their names begin with."""
    empty = True
    for item in read(directory):
        empty = False
        name = "/".join(part for part in (prefix, item.name) if part not in ("", ".")) or _last_part(place)
        if isinstance(item, Problem):
            found.problems.append(Problem(name, item.reason))
            continue
        if name in found.series:  # the same directory below two of the places
            continue
        run = Run(name, item.config, [], item.summary, item.environment)
        try:
            series = Series.of(item.rows, item.summary["seeds"])
            presentations.check(run)
        except UNREADABLE as error:
            found.problems.append(Problem(name, f"cannot be shown ({type(error).__name__}: {error})"))
            continue
        found.runs.append(run)
        found.series[name] = series
        if (directory / item.name).resolve().is_relative_to(RESULTS):
            found.committed.add(name)
    if empty:
        found.problems.append(Problem(place, "holds no run"))


def _last_part(place: str) -> str:
    return place.rstrip("/").rpartition("/")[2] if "://" in place else Path(place).resolve().name
