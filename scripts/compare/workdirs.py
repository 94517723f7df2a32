"""Finds the runs to compare, and reads them one at a time: the rows of hundreds do not fit in memory as JSON."""

import dataclasses
import gc
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from experiments.core.report.results import UNREADABLE, Problem, Run, read
from scripts.compare import presentations, remote
from scripts.compare.series import Series

RESULTS = Path(__file__).parents[2] / "results"
_PATIENCE = 5.0  # seconds without a line


@dataclasses.dataclass(frozen=True)
class Found:
    """What was found in several places.

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
    for place in dict.fromkeys(places):
        try:
            with remote.local(place) as directory, _without_collection():
                _add(found, directory, place, place.rstrip("/") if several else "")
        except remote.NotFoundError as error:
            found.problems.append(Problem(place, str(error)))
    return found


def _add(found: Found, directory: Path, place: str, prefix: str) -> None:
    """Adds the runs below `directory`, where `place` is or was copied to; `prefix` is what their names begin with."""
    empty = True
    last = time.monotonic()
    for item in read(directory):
        empty = False
        if time.monotonic() - last > _PATIENCE:
            last = time.monotonic()
            print(f"{len(found.runs)} runs read", file=sys.stderr, flush=True)
        name = "/".join(part for part in (prefix, item.name) if part not in ("", ".")) or _last_part(place)
        if isinstance(item, Problem):
            found.problems.append(Problem(name, item.reason))
            continue
        if name in found.series:  # the same directory below two of the places
            continue
        try:
            series = Series.of(item.rows, item.summary["seeds"])
        except UNREADABLE as error:
            found.problems.append(Problem(name, f"unreadable: {type(error).__name__}: {error}"))
            continue
        run = Run(name, item.config, [], item.summary, item.environment, item.reason)
        if reason := presentations.odd(run):
            found.problems.append(Problem(name, reason))
            continue
        found.runs.append(run)
        found.series[name] = series
        if (directory / item.name).resolve().is_relative_to(RESULTS):
            found.committed.add(name)
    if empty:
        found.problems.append(Problem(place, "holds no run"))


def _last_part(place: str) -> str:
    return place.rstrip("/").rpartition("/")[2] if "://" in place else Path(place).resolve().name


@contextmanager
def _without_collection() -> Iterator[None]:
    """Rows are millions of small objects without cycles, among which looking for cycles takes most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
