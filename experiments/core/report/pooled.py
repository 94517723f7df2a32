"""Runs of one seed each as one run of many seeds: large networks train alone."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from experiments.core.config import COMPUTED_HOW
from experiments.core.record.summary import interval
from experiments.core.report.results import Run


def pooled(runs: Iterable[Run]) -> list[Run]:
    """Runs whose configs differ in their seeds alone as one, under all their names, and without rows."""
    return [_one(members) if len(members) > 1 else members[0] for members in alike(runs)]


def _config(run: Run) -> Any:
    return run.config | dict.fromkeys(("seeds", *COMPUTED_HOW))


def alike(runs: Iterable[Run], what: Callable[[Run], Any] = _config) -> list[list[Run]]:
    """Runs grouped by `what` they are of: by default their config, seeds aside; finished and unfinished ones apart.

    Where two of them have a seed in common, one of them is a repetition: then all stay by themselves.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps([what(run), run.done], sort_keys=True), []).append(run)
    result = []
    for members in groups.values():
        seeds = [seed for run in members for seed in run.summary["seeds"]]
        result += [members] if len(set(seeds)) == len(seeds) else [[run] for run in members]
    return result


def _one(members: list[Run]) -> Run:
    seeds = [seed for run in members for seed in run.summary["seeds"]]
    summaries = [run.summary for run in members]
    sums = {name: sum(summary[name] for summary in summaries) for name in ("diverged", "seconds")}
    final = _joined([summary["final"] for summary in summaries])
    first = members[0]
    # A run of whose launches nothing is known has trained somewhere all the same.
    begun, *resumed = [launch for run in members for launch in run.launches or [{}]]
    kept = set.intersection(*(set(run.examples) for run in members))
    return Run(
        name=", ".join(run.name for run in members),
        config=first.config | {"seeds": seeds},
        rows=[],
        summary=first.summary | sums | {"seeds": seeds, "final": final},
        environment=begun | {"resumed": resumed},
        examples={name: np.concatenate([run.examples[name] for run in members]) for name in sorted(kept)},
    )


def _joined(finals: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Metrics at the end, possibly nested, over the seeds of all."""
    if "per_seed" in finals[0]:
        return interval([value for final in finals for value in final["per_seed"]])
    return {name: _joined([final[name] for final in finals]) for name in finals[0]}
