"""Reads runs, the workdirs and archives below a directory, whole or broken; and groups them."""

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
from experiments.core.errors import DamagedError, UsageError, printable
from experiments.core.kinds import Fields
from experiments.core.record import metrics
from experiments.core.record.files import read_object
from experiments.core.record.metrics import Row
from experiments.core.record.summary import PROGRESS, interval, summarize
from experiments.core.record.workdir import Workdir
from experiments.core.report import archive

_ADVICE = "put back a copy of it, or run again what made it"
# Raised where files of other programs are taken for those of a run.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError)
_MARKS = ("config.json", "metrics.jsonl", "summary.json")  # a directory with one of these is a workdir


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A finished run, or one as far as it has come.

    Attributes:
      name: its path below the directory read.
      config: as in config.json.
      rows: of metrics.jsonl.
      summary: as in summary.json; of an unfinished run, what that would be after its last row. Its `state` is `done`,
        or for example `unfinished, at epoch 3 of 30`, whether it goes on or not.
      environment: as in environment.json, if there is one.
      examples: what was kept of each evaluated example, arrays [S, N] by name; often none.
      params: reads the parameters at the end, arrays by path; none where they were not kept.
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
        """The fields of the config by dotted name and in order, but for the seeds."""
        return dict(sorted(leaves({name: value for name, value in self.config.items() if name != "seeds"}, prefix="")))

    @property
    def state(self) -> str:
        """How far it has come, as `summary` says it."""
        return self.summary["state"]

    @property
    def experiment(self) -> str:
        """The name of its package below `experiments`, as recorded when it began; empty if that is lost."""
        return (self.environment or {}).get("experiment") or ""

    @property
    def done(self) -> bool:
        """Whether the run has come to its end."""
        return self.state == "done"

    @functools.cached_property
    def _finals(self) -> dict[str, list[float | None]]:
        return _final_values(self.summary)

    def final(self, metric: str) -> list[float | None]:
        """The values of a metric at the end, by seed; nested ones as `test_accuracy/1`."""
        return self._finals[metric]

    def has(self, metric: Any) -> bool:
        """Whether there is a metric of this name; what computes one from the run is taken for there."""
        return not isinstance(metric, str) or metric in self._finals

    def end(self, metric: str) -> dict[str, Any] | None:
        """Mean and interval of a metric at the end; None where the run has no such metric."""
        return interval(self.final(metric)) if self.has(metric) else None


@dataclasses.dataclass(frozen=True)
class Problem:
    """A workdir that cannot be used, and why; each a line that a terminal can show."""

    name: str
    reason: str

    def __post_init__(self) -> None:
        for field, text in (("name", self.name), ("reason", " ".join(self.reason.split()))):
            object.__setattr__(self, field, printable(text))


def load(directory: Path) -> tuple[list[Run], list[Problem]]:
    """All runs below `directory`, by name; those unfinished or broken as problems."""
    found = list(read(directory))
    runs = [one for one in found if isinstance(one, Run) and one.done]
    unfinished = [Problem(one.name, one.state) for one in found if isinstance(one, Run) and not one.done]
    return runs, sorted([*unfinished, *(one for one in found if isinstance(one, Problem))], key=lambda one: one.name)


def read(directory: Path) -> Iterator[Run | Problem]:
    """All runs below `directory`, by name, one at a time; unfinished ones, too, and broken ones as problems.

    A run that is archived beside its workdir is read once, from the archive.
    """
    archived: set[Path] = set()
    places = sorted(os.walk(directory), key=lambda place: str(Path(place[0]).relative_to(directory)))
    for path, files in ((Path(place), files) for place, _, files in places):
        name = str(path.relative_to(directory))
        if archive.RUNS in files:
            for found in _read_archive(path, "" if name == "." else f"{name}/"):
                archived.add(directory / found.name)
                yield found
        if path not in archived and any(os.path.lexists(path / mark) for mark in _MARKS):
            yield _or_problem(name, path, functools.partial(_read_workdir, path, name))


def length(config: dict[str, Any]) -> tuple[str, int]:
    """Returns the unit that a run is counted in, "epoch" or "step", and its length in it."""
    unit = "step" if config.get("steps") is not None else "epoch"
    if not is_whole(config.get(f"{unit}s")):
        raise UsageError("config.json is of no run of this repository: it has a number of neither epochs nor steps")
    return unit, config[f"{unit}s"]


def grouped(runs: Iterable[Run], key: Callable[[Run], Any]) -> dict[Any, list[Run]]:
    """The runs by a key, in their order."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def alike(runs: Iterable[Run], what: Callable[[Run], Any] | None = None) -> list[list[Run]]:
    """Groups runs by `what` they are of: by default the config, seeds aside. Finished and unfinished ones stay apart.

    Where two of them have a seed in common, one of them is a repetition: then all stay by themselves.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        key = what(run) if what else run.config | dict.fromkeys(("seeds", *COMPUTED_HOW))
        groups.setdefault(json.dumps([key, run.done], sort_keys=True), []).append(run)
    result = []
    for members in groups.values():
        seeds = [seed for run in members for seed in run.summary["seeds"]]
        result += [members] if len(set(seeds)) == len(seeds) else [[run] for run in members]
    return result


def pooled(runs: Iterable[Run]) -> list[Run]:
    """Runs whose configs differ in their seeds alone as one, under all their names, and without rows."""
    return [_one(members) if len(members) > 1 else members[0] for members in alike(runs)]


def _or_problem(name: str, path: Path, read: Callable[[], Run]) -> Run | Problem:
    """The run that is read, or what is wrong with it."""
    try:
        return read()
    except UsageError as error:
        # By its name in the directory, which may be a copy that is gone when this is read.
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
    """The runs that are archived in a directory."""
    try:
        for record, arrays in archive.read(path):
            name = prefix + record["name"]
            yield _or_problem(
                name,
                path,
                functools.partial(_archived, path / archive.RUNS, name, record, arrays),
            )
    except UsageError as error:
        yield Problem(prefix.rstrip("/") or ".", str(error).replace(f"{path}/", ""))


def _archived(path: Path, name: str, record: archive.Record, arrays: archive.Arrays) -> Run:
    if metrics.sha256_of(record["rows"]) != record["summary"]["metrics_sha256"]:
        raise DamagedError(path, "its SHA-256 is not the one in summary.json", _ADVICE)
    return _finished(name, record, arrays, arrays.get("params"))


def _finished(
    name: str, record: archive.Record, arrays: archive.Arrays, params: Mapping[str, np.ndarray] | Path | None
) -> Run:
    """A run that is done, once its config, rows and summary are found to belong together."""
    config, rows, summary, environment = (record[part] for part in ("config", "rows", "summary", "environment"))
    unit, total = length(config)
    last = rows[-1]
    is_its_end = (last[unit], last["step"], config["seeds"]) == (total, summary["steps"], summary["seeds"])
    measured = dict(metrics.flatten({name: value for name, value in last.items() if name not in PROGRESS}))
    if not is_its_end or measured != _final_values(summary):
        raise UsageError("summary.json does not belong to the last row of metrics.jsonl")
    read_params = functools.partial(_params, params) if isinstance(params, Path) else lambda: params or {}
    return Run(name, config, rows, summary, environment, arrays.get("examples", {}), read_params)


def _final_values(summary: dict[str, Any]) -> dict[str, list[float | None]]:
    """The values by seed of every metric."""
    suffix = "/per_seed"
    return {
        name.removesuffix(suffix): values for name, values in metrics.flatten(summary["final"]) if name.endswith(suffix)
    }


def _params(path: Path) -> dict[str, np.ndarray]:
    return dict(np.load(path, allow_pickle=False)) if path.exists() else {}


def _examples(path: Path, summary: dict[str, Any]) -> dict[str, np.ndarray]:
    """What a run that is done has kept of each example; nothing if it was not asked to."""
    if "examples_sha256" not in summary:
        return {}
    if not path.exists():
        raise UsageError(f"{path.name} is missing, of which summary.json has the SHA-256, {_ADVICE}")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != summary["examples_sha256"]:
        raise UsageError(f"{path.name} is damaged: its SHA-256 is not the one in summary.json, {_ADVICE}")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def _one(members: Sequence[Run]) -> Run:
    seeds = [seed for run in members for seed in run.summary["seeds"]]
    summaries = [run.summary for run in members]
    sums = {name: sum(summary[name] for summary in summaries) for name in ("diverged", "seconds")}
    joined = _joined([summary["final"] for summary in summaries])
    kept = set.intersection(*(set(run.examples) for run in members))
    return Run(
        name=", ".join(run.name for run in members),
        config=members[0].config | {"seeds": seeds},
        rows=[],
        summary=summaries[0] | sums | {"seeds": seeds, "final": joined},
        environment=members[0].environment,
        examples={name: np.concatenate([run.examples[name] for run in members]) for name in sorted(kept)},
    )


def _joined(finals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Metrics at the end, possibly nested, over the seeds of all."""
    if "per_seed" in finals[0]:
        return interval([value for final in finals for value in final["per_seed"]])
    return {name: _joined([final[name] for final in finals]) for name in finals[0]}
