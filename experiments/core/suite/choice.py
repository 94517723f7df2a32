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

    A candidate is worth the mean over its seeds of its `chosen_by`, or of the suite's, at the end, where a seed that
    diverged counts `suite.if_diverged`. The earlier of two equals wins. Where candidates take the winner of an earlier
    choice (`best_of`), that competes with them; the settings are then those of both choices.
    """
    candidates: dict[str, list[SuiteRun]] = {}
    for run in runs:
        if run.candidate_for:
            candidates.setdefault(run.candidate_for, []).append(run)
    choices: dict[str, dict[str, Any]] = {}
    for choice, rivals in candidates.items():
        earlier = {run.best_of: choices[run.best_of] for run in rivals if run.best_of}
        measured = [entry for won in earlier.values() for entry in won["candidates"] if entry["run"] == won["chosen"]]
        missing = [name for won in earlier.values() for name in won["missing"]]
        choices[choice] = _decide(measured + [_measure(suite, out, run, choices) for run in rivals], missing)
    return choices


def _decide(measured: Sequence[dict[str, Any]], missing: Sequence[str]) -> dict[str, Any]:
    finished = [entry for entry in measured if entry["mean"] is not None]
    best = min(finished, key=lambda entry: entry["mean"], default=None)
    return {
        "chosen": best["run"] if best else None,
        "setting": best["setting"] if best else None,
        "missing": [*missing, *(entry["run"] for entry in measured if entry["mean"] is None)],
        "candidates": measured,
    }


def _measure(suite: Suite, out: Path, run: SuiteRun, choices: dict[str, dict[str, Any]]) -> dict[str, Any]:
    setting = dict(run.setting)
    if run.best_of is not None:
        setting = (choices[run.best_of]["setting"] or {}) | setting
    entry: dict[str, Any] = {"run": run.name, "setting": setting, "per_seed": None, "mean": None}
    try:
        summary = Workdir(out / run.name).read_summary()
        values = summary["final"][run.chosen_by or suite.chosen_by]["per_seed"]
    except (OSError, KeyError, UsageError):  # what is damaged is said where the run has its turn
        return entry
    counted = [suite.if_diverged if value is None else value for value in values]
    return entry | {"per_seed": values, "mean": float(np.mean(counted))}
