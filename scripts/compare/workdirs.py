"""Finds the runs to compare, and reads them one by one: as JSON the rows of hundreds would not fit in memory."""

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
    """The runs found in several places.

    Attributes:
      runs: the runs, without rows and arrays, under unique names.
      series: their rows, by name.
      problems: the workdirs and places that are left out.
      committed: the names of runs that are results of this repository.
    """

    runs: list[Run]
    series: dict[str, Series]
    problems: list[Problem]
    committed: set[str] = dataclasses.field(default_factory=set)


def find(places: Sequence[str]) -> Found:
    """Returns the runs in or below each place, a directory or a URL; broken, empty and foreign ones are problems."""
    found = Found([], {}, [])
    several = len(set(places)) > 1
    gc.disable()  # rows are millions of small objects; a search for cycles would take most of the time
    for place in dict.fromkeys(places):
        try:
            with remote.local(place) as directory:
                _add(found, directory, place, place.rstrip("/") if several else "")
        except remote.NotFoundError as error:
            found.problems.append(Problem(place, str(error)))
    gc.enable()
    return found


def _add(found: Found, directory: Path, place: str, prefix: str) -> None:
    """Adds the runs of `place` from `directory`, the place itself or a copy; their names begin with `prefix`."""
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
