"""Runs as a pandas frame: a row a run, a column a field of the config."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.core.config import COMPUTED_HOW
from experiments.core.kinds import Fields, is_of
from experiments.core.record.metrics import flatten
from experiments.core.record.summary import interval
from experiments.core.report.results import Run

# Fields that say how a run is carried out and what it keeps: what it learns does not depend on them.
HOW = (
    *("accelerator", "checkpoint_every", "data_dir", "download", "eval_batch_size", "eval_every", "export_examples"),
    *("export_probe", "export_pictures", "export_params", "features.directory", "feed", "input.prefetch"),
    *("input.workers", "steps_per_dispatch", "tensorboard", *COMPUTED_HOW),
)
RUN = "run"  # the column with the runs themselves


def frame(runs: Iterable[Run]) -> pd.DataFrame:
    """Makes a frame of runs.

    Returns:
      A row for each run, by its name. The columns are the fields of the configs by dotted name, but for the seeds, with
      None where a config has no such field; lists are tuples. The column `run` has the runs.
    """
    runs = list(runs)
    configs = [dotted(run.config) for run in runs]
    columns = dict.fromkeys(name for config in configs for name in config)
    found = pd.DataFrame(
        {name: [_hashable(config.get(name)) for config in configs] for name in columns},
        index=[run.name for run in runs],
        dtype=object,
    )
    found[RUN] = pd.Series(runs, index=found.index, dtype=object)
    return found


def dotted(config: Mapping[str, Any]) -> Fields:
    """The fields of a config as it was saved, by dotted name and in order, but for its seeds."""
    flat = flatten({name: value for name, value in config.items() if name != "seeds"})
    return {name.replace("/", "."): value for name, value in sorted(flat)}


def is_how(field: str) -> bool:
    """Whether no number of a run depends on the field."""
    return is_of(field, HOW)


def differing(found: pd.DataFrame) -> list[str]:
    """The fields that not all rows of a frame have the same value of, in the order of its columns."""
    return [name for name in found.columns if name != RUN and len(set(found[name])) > 1]


def final(found: pd.DataFrame, metric: str) -> pd.Series:
    """Mean and interval of a metric at the end, by run; None where a run has no such metric."""

    def of(run: Run) -> dict[str, Any] | None:
        try:
            return interval(run.final(metric))
        except KeyError:
            return None

    return found[RUN].map(of)


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


def _one(members: Sequence[Run]) -> Run:
    seeds = [seed for run in members for seed in run.summary["seeds"]]
    summaries = [run.summary for run in members]
    sums = {name: sum(summary[name] for summary in summaries) for name in ("diverged", "seconds")}
    joined = _joined([summary["final"] for summary in summaries])
    first = members[0]
    # A run of whose launches nothing is known has trained somewhere all the same.
    begun, *resumed = [launch for run in members for launch in run.launches or [{}]]
    kept = set.intersection(*(set(run.examples) for run in members))
    return Run(
        name=", ".join(run.name for run in members),
        config=first.config | {"seeds": seeds},
        rows=[],
        summary=first.summary | sums | {"seeds": seeds, "final": joined},
        environment=begun | {"resumed": resumed},
        examples={name: np.concatenate([run.examples[name] for run in members]) for name in sorted(kept)},
    )


def _joined(finals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Metrics at the end, possibly nested, over the seeds of all."""
    if "per_seed" in finals[0]:
        return interval([value for final in finals for value in final["per_seed"]])
    return {name: _joined([final[name] for final in finals]) for name in finals[0]}


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _hashable(part)) for name, part in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
