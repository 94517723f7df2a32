"""Choosing hyper-parameters on validation: the lowest mean of a metric over seeds."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.errors import UsageError
from experiments.core.record.workdir import Workdir
from experiments.core.suite.plan import Suite, SuiteRun


def choose(suite: Suite, out: Path, runs: Iterable[SuiteRun]) -> dict[str, dict[str, Any]]:
    """For every choice among the `runs` below `out`, its candidates and the best of those that are finished.

    A candidate is worth the mean over its seeds of `suite.chosen_by` at the end, where a seed that
    diverged counts `suite.if_diverged`. The earlier of two equals wins.
    """
    candidates: dict[str, list[SuiteRun]] = {}
    for run in runs:
        if run.candidate_for:
            candidates.setdefault(run.candidate_for, []).append(run)
    return {choice: _decide([_measure(suite, out, run) for run in rivals]) for choice, rivals in candidates.items()}


def _decide(measured: Sequence[dict[str, Any]]) -> dict[str, Any]:
    finished = [entry for entry in measured if entry["mean"] is not None]
    best = min(finished, key=lambda entry: entry["mean"], default=None)
    return {
        "chosen": best["run"] if best else None,
        "setting": best["setting"] if best else None,
        "missing": [entry["run"] for entry in measured if entry["mean"] is None],
        "candidates": measured,
    }


def _measure(suite: Suite, out: Path, run: SuiteRun) -> dict[str, Any]:
    entry: dict[str, Any] = {"run": run.name, "setting": dict(run.setting), "per_seed": None, "mean": None}
    try:
        summary = Workdir(out / run.name).read_summary()
        values = summary["final"][suite.chosen_by]["per_seed"]
    except (OSError, KeyError, UsageError):  # what is damaged is said where the run has its turn
        return entry
    counted = [suite.if_diverged if value is None else value for value in values]
    return entry | {"per_seed": values, "mean": float(np.mean(counted))}
