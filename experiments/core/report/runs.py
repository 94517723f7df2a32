"""Groups of runs: those that differ in their seeds alone are one."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.core.config import COMPUTED_HOW
from experiments.core.record.summary import interval
from experiments.core.report.results import Run


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
