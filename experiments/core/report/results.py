"""Reads the runs of workdirs and archives, names what is wrong with broken ones, and groups them."""

import dataclasses
import functools
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.config import COMPUTED_HOW, is_whole, leaves
from experiments.core.errors import UsageError, printable
from experiments.core.kinds import Fields
from experiments.core.record import metrics
from experiments.core.record.files import read_object
from experiments.core.record.metrics import Row
from experiments.core.record.summary import PROGRESS, interval, summarize
from experiments.core.record.workdir import Workdir
from experiments.core.report import archive

_ADVICE = "put back a copy of it, or run again what made it"
# Raised when files of another program are read as a run.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError)
_WORKDIR_FILES = ("config.json", "metrics.jsonl", "summary.json")  # one of them makes a directory a workdir


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A finished run, or one as far as it has come.

    Attributes:
      name: its path below the directory that was read.
      config: the contents of config.json.
      rows: the rows of metrics.jsonl.
      summary: the contents of summary.json; for an unfinished run, what they would be after its last row. `state` in it
        is `done`, or for example `unfinished, at epoch 3 of 30`.
      environment: the contents of environment.json, if there is one.
      examples: arrays [S, N] by name, one value for each seed and evaluated example; empty unless the run kept them.
      params: reads the parameters at the end, arrays by path; empty unless the run kept them.
    """

    name: str
    config: dict[str, Any]
    rows: list[Row]
    summary: dict[str, Any]
    environment: dict[str, Any] | None = None
    examples: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    params: Callable[[], Mapping[str, np.ndarray]] = dict

    @functools.cached_property
    def fields(self) -> Fields:
        """The fields of the config without the seeds, by dotted name, sorted."""
        return dict(sorted(leaves({name: value for name, value in self.config.items() if name != "seeds"}, prefix="")))

    @property
    def state(self) -> str:
        """The progress of the run, as its summary has it: `done`, or how far it has come."""
        return self.summary["state"]

    @property
    def experiment(self) -> str:
        """The name of its package below `experiments`, as recorded at its start; empty if there is no record."""
        return (self.environment or {}).get("experiment") or ""

    @property
    def data(self) -> str:
        """The fingerprint of its data, as recorded at its start; empty if there is none."""
        return (self.environment or {}).get("data") or ""

    @property
    def done(self) -> bool:
        """Tells whether the run is finished."""
        return self.state == "done"

    @functools.cached_property
    def finals(self) -> dict[str, list[float | None]]:
        """The values of each metric at the end, by seed; a nested metric has a name such as `test_accuracy/1`."""
        return _final_values(self.summary)

    def final(self, metric: str) -> list[float | None]:
        """Returns the values of a metric at the end, by seed."""
        return self.finals[metric]


@dataclasses.dataclass(frozen=True)
class Problem:
    """A run that cannot be used, and the reason; each is one line that is safe to print."""

    name: str
    reason: str

    def __post_init__(self) -> None:
        for field, text in (("name", self.name), ("reason", " ".join(self.reason.split()))):
            object.__setattr__(self, field, printable(text))


def load(directory: Path) -> tuple[list[Run], list[Problem]]:
    """Returns the finished runs below `directory`, by name; unfinished and broken ones as problems."""
    items = list(read(directory))
    runs = [item for item in items if isinstance(item, Run) and item.done]
    unfinished = [Problem(item.name, item.state) for item in items if isinstance(item, Run) and not item.done]
    return runs, sorted(
        [*unfinished, *(item for item in items if isinstance(item, Problem))], key=lambda item: item.name
    )


def read(directory: Path) -> Iterator[Run | Problem]:
    """Yields the runs below `directory`, by name, finished or not; a broken one as a problem.

    A run that has both an archive and a workdir is read once, from the archive; a workdir that has changed since is a
    problem.
    """
    archived: dict[Path, Run] = {}
    places = sorted(os.walk(directory), key=lambda place: str(Path(place[0]).relative_to(directory)))
    for path, files in ((Path(place), files) for place, _, files in places):
        name = str(path.relative_to(directory))
        if archive.RUNS in files:
            for item in _read_archive(path, "" if name == "." else f"{name}/"):
                if isinstance(item, Run):
                    archived[directory / item.name] = item
                yield item
        if not any(os.path.lexists(path / mark) for mark in _WORKDIR_FILES):
            continue
        if path not in archived:
            yield _or_problem(name, path, functools.partial(_read_workdir, path, name))
        elif not _is_still(archived[path], Workdir(path)):
            yield Problem(name, "another run than the one of this name in an archive above it: rename or remove one")


def length(config: dict[str, Any]) -> tuple[str, int]:
    """Returns the unit of a run's length, "epoch" or "step", and its length in that unit."""
    unit = "step" if config.get("steps") is not None else "epoch"
    if not is_whole(config.get(f"{unit}s")):
        raise UsageError("config.json is of no run of this repository: epochs or steps must be a whole number")
    return unit, config[f"{unit}s"]


def grouped(runs: Iterable[Run], key: Callable[[Run], Any]) -> dict[Any, list[Run]]:
    """Groups runs by a key, in their order."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def alike(runs: Iterable[Run], key: Callable[[Run], Any] | None = None) -> list[list[Run]]:
    """Groups runs that differ in their seeds alone, or have the same `key`.

    Finished and unfinished runs stay apart, and so do those on other data, whether known or not recorded.

    If two runs of a group have a seed in common, one repeats the other: then each of the group stays alone.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        same = key(run) if key else run.config | dict.fromkeys(("seeds", *COMPUTED_HOW))
        groups.setdefault(json.dumps([same, run.done, run.data], sort_keys=True), []).append(run)
    result = []
    for members in groups.values():
        seeds = [seed for run in members for seed in run.summary["seeds"]]
        result += [members] if len(set(seeds)) == len(seeds) else [[run] for run in members]
    return result


def pooled(runs: Iterable[Run]) -> list[Run]:
    """Joins runs that differ in their seeds alone; a joined run has all their names and rows."""
    return [_joined(members) if len(members) > 1 else members[0] for members in alike(runs)]


def _is_still(run: Run, workdir: Workdir) -> bool:
    """Returns whether a workdir, or what is left of it, is that of an archived run."""
    for path, kept in ((workdir.config, run.config), (workdir.summary, run.summary)):
        try:
            if path.exists() and json.loads(path.read_bytes()) != kept:
                return False
        except ValueError:
            return False
    # A config without a summary is that of a run that is trained anew.
    return workdir.summary.exists() or not workdir.config.exists()


def _or_problem(name: str, path: Path, read: Callable[[], Run]) -> Run | Problem:
    """Returns the run, or the problem with it."""
    try:
        return read()
    except UsageError as error:
        # The path may be that of a temporary copy.
        return Problem(name, str(error).replace(f"{path.absolute()}/", "").replace(f"{path}/", ""))
    except UNREADABLE as error:
        return Problem(name, f"unreadable: {type(error).__name__}: {error}")


def _read_workdir(path: Path, name: str) -> Run:
    workdir = Workdir(path)
    if not workdir.config.exists():
        raise UsageError("config.json is missing")
    rows = metrics.read(workdir.metrics)
    if not rows:
        raise UsageError("metrics.jsonl is missing or empty")
    config = read_object(workdir.config, _ADVICE)
    unit, total = length(config)
    metrics.require_complete(workdir.metrics, rows, config)
    environment = read_object(workdir.environment, _ADVICE) if workdir.environment.exists() else None
    if not workdir.summary.exists():
        state = f"unfinished, at {unit} {rows[-1][unit]} of {total}"
        return Run(name, config, rows, summarize(config["seeds"], rows[-1]) | {"state": state}, environment)
    summary = read_object(workdir.summary, _ADVICE)
    record = {"config": config, "rows": rows, "summary": summary, "environment": environment}
    metrics.require_sha256(workdir.metrics, summary["metrics_sha256"])
    return _finished(name, record, {"examples": _examples(workdir.examples, summary)}, workdir.params)


def _read_archive(path: Path, prefix: str) -> Iterator[Run | Problem]:
    """Yields the runs of an archive, each as a run or a problem."""
    try:
        for record, arrays in archive.read(path):
            name = prefix + record["name"]
            yield _or_problem(name, path, functools.partial(_finished, name, record, arrays, arrays.get("params")))
    except UsageError as error:
        yield Problem(prefix.rstrip("/") or ".", str(error).replace(f"{path}/", ""))


def _finished(
    name: str, record: archive.Record, arrays: archive.Arrays, params: Mapping[str, np.ndarray] | Path | None
) -> Run:
    """Returns a finished run, after a check that its config, rows and summary belong together."""
    config, rows, summary, environment = (record[part] for part in ("config", "rows", "summary", "environment"))
    unit, total = length(config)
    last = rows[-1]
    is_the_end = (last[unit], last["step"], config["seeds"]) == (total, summary["steps"], summary["seeds"])
    measured = dict(metrics.flatten({name: value for name, value in last.items() if name not in PROGRESS}))
    if not is_the_end or measured != _final_values(summary):
        raise UsageError("summary.json does not belong to the last row of metrics.jsonl")
    read_params = functools.partial(_params, params) if isinstance(params, Path) else lambda: params or {}
    return Run(name, config, rows, summary, environment, arrays.get("examples", {}), read_params)


def _final_values(summary: dict[str, Any]) -> dict[str, list[float | None]]:
    """Returns the values of every metric at the end, by seed."""
    suffix = "/per_seed"
    return {
        name.removesuffix(suffix): values for name, values in metrics.flatten(summary["final"]) if name.endswith(suffix)
    }


def _params(path: Path) -> dict[str, np.ndarray]:
    return dict(np.load(path, allow_pickle=False)) if path.exists() else {}


def _examples(path: Path, summary: dict[str, Any]) -> dict[str, np.ndarray]:
    """Returns the arrays of examples that a finished run kept; empty if its config did not ask for them."""
    if "examples_sha256" not in summary:
        return {}
    if not path.exists():
        raise UsageError(f"{path.name} is missing, of which summary.json has the SHA-256, {_ADVICE}")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != summary["examples_sha256"]:
        raise UsageError(f"{path.name} is damaged: its SHA-256 is not the one in summary.json, {_ADVICE}")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def _joined(members: Sequence[Run]) -> Run:
    summaries = [run.summary for run in members]
    sums = {name: sum(summary[name] for summary in summaries) for name in ("diverged", "seconds")}
    seeds = [seed for summary in summaries for seed in summary["seeds"]]
    finals = {name: interval([value for run in members for value in run.final(name)]) for name in members[0].finals}
    kept = set.intersection(*(set(run.examples) for run in members))
    return Run(
        name=", ".join(run.name for run in members),
        config=members[0].config | {"seeds": seeds},
        rows=[_side_by_side(rows) for rows in zip(*(run.rows for run in members), strict=False)],
        summary=summaries[0] | sums | {"seeds": seeds, "final": finals},
        environment=members[0].environment,
        examples={name: np.concatenate([run.examples[name] for run in members]) for name in sorted(kept)},
    )


def _side_by_side(values: Sequence[Any]) -> Any:
    """Joins values of rows: lists by seed one after the other, dicts by name; a number that is not the same is None."""
    first = values[0]
    if isinstance(first, dict):
        shared = [name for name in first if all(name in value for value in values)]
        return {name: _side_by_side([value[name] for value in values]) for name in shared}
    if isinstance(first, list):
        return [number for value in values for number in value]
    return first if all(value == first for value in values) else None
