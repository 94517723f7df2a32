"""Choosing hyper-parameters on validation: the lowest mean error of the hardened network."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.workdir import Workdir
from experiments.mnist_pruning.suite.plan import Run

DIVERGED_ERROR = 90.0  # percent: a network that guesses among ten classes


def choose(out: Path, runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """For every choice, its finished candidates and the best of them.

    A candidate is worth the mean over its seeds of the hardened error after the last epoch, where
    a seed that diverged counts 90 %. The earlier of two equals wins.
    """
    candidates: dict[str, list[Run]] = {}
    for run in runs:
        if run.candidate_for:
            candidates.setdefault(run.candidate_for, []).append(run)
    return {choice: _decide([_measure(out, run) for run in rivals]) for choice, rivals in candidates.items()}


def _decide(measured: Sequence[dict[str, Any]]) -> dict[str, Any]:
    finished = [entry for entry in measured if entry["mean"] is not None]
    best = min(finished, key=lambda entry: entry["mean"], default=None)
    return {
        "chosen": best["run"] if best else None,
        "setting": best["setting"] if best else None,
        "missing": [entry["run"] for entry in measured if entry["mean"] is None],
        "candidates": measured,
    }


def _measure(out: Path, run: Run) -> dict[str, Any]:
    entry: dict[str, Any] = {"run": run.name, "setting": dict(run.setting), "per_seed": None, "mean": None}
    try:
        summary = json.loads(Workdir(out / run.name).summary.read_text())
        values = summary["final"]["hardened_error"]["per_seed"]
    except (OSError, ValueError, KeyError):
        return entry
    counted = [DIVERGED_ERROR if value is None else value for value in values]
    return entry | {"per_seed": values, "mean": float(np.mean(counted))}
