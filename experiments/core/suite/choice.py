"""Choosing hyper-parameters on validation: the lowest mean of a metric over seeds."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.errors import UsageError
from experiments.core.record.workdir import Workdir
from experiments.core.suite.plan import Fields, Suite, SuiteRun

Choice = dict[str, Any]


def choose(
    suite: Suite, out: Path, runs: Iterable[SuiteRun], given: Mapping[str, Choice] | None = None
) -> dict[str, Choice]:
    """Makes every choice among the `runs` below `out`: its candidates, and the best of those that are finished.

    A candidate is worth the mean over its seeds of its `chosen_by`, or of the suite's, at the end, where a seed that
    diverged counts 100. The earlier of two equals wins. Runs with an outdated config are ignored.

    Candidates may take the winner of an earlier choice (`best_of`); the settings are then those of both choices. That
    winner competes, too, if it differs from them in its setting alone. Where the earlier choice is `given`, that holds.
    """
    candidates: dict[str, list[SuiteRun]] = {}
    for run in runs:
        if run.candidate_for:
            candidates.setdefault(run.candidate_for, []).append(run)
    choices: dict[str, Choice] = {}
    for choice, rivals in candidates.items():
        measured, missing = [], []
        decided = {**choices, **(given or {})}
        for name in dict.fromkeys(run.best_of for run in rivals if run.best_of):
            missing += decided[name]["missing"]
            won = next((run for run in candidates[name] if run.name == decided[name]["chosen"]), None)
            if won is not None and all(_but_setting(won) == _but_setting(run) for run in rivals):
                measured += [entry for entry in decided[name]["candidates"] if entry["run"] == won.name]
        for run in rivals:
            earlier = decided[run.best_of]["setting"] or {} if run.best_of else {}
            measured.append(_measure(suite, out, run, {**earlier, **run.setting}))
        finished = [entry for entry in measured if entry["mean"] is not None]
        best = min(finished, key=lambda entry: entry["mean"], default=None)
        choices[choice] = {
            "chosen": best["run"] if best else None,
            "setting": best["setting"] if best else None,
            "missing": [*missing, *(entry["run"] for entry in measured if entry["mean"] is None)],
            "candidates": measured,
        }
    return choices


def _but_setting(run: SuiteRun) -> tuple[str, dict[str, Any], str | None]:
    return run.variant, dict(run.base), run.weights_of


def _measure(suite: Suite, out: Path, run: SuiteRun, setting: Fields) -> dict[str, Any]:
    entry: dict[str, Any] = {"run": run.name, "setting": setting, "per_seed": None, "mean": None}
    workdir = Workdir(out / run.name)
    try:
        summary = workdir.read_summary()
        values = summary["final"][run.chosen_by or suite.chosen_by]["per_seed"]
        workdir.check(suite.config(run, out, setting))
    except (OSError, KeyError, UsageError):  # what is damaged, or another, is said where the run has its turn
        return entry
    counted = [100.0 if value is None else value for value in values]
    return entry | {"per_seed": values, "mean": float(np.mean(counted))}


def check_given(suite: Suite, out: Path, runs: Iterable[SuiteRun], given: Mapping[str, Any]) -> None:
    """Raises `UsageError` unless `given` are choices that some of the `runs` take, of fields that these have."""
    takers = {run.best_of: run for run in runs if run.best_of}
    parts = {"chosen": str | None, "setting": dict | None, "missing": list, "candidates": list}
    for name, choice in given.items():
        whole = isinstance(choice, dict) and parts.keys() <= choice.keys()
        if not (whole and all(isinstance(choice[part], kind) for part, kind in parts.items())):
            raise UsageError(f"--choices: {name!r} must be a choice that a suite has written, with {', '.join(parts)}")
        if name in takers:
            suite.config(takers[name], out, {**(choice["setting"] or {}), **takers[name].setting})
    if given and not takers.keys() & given.keys():
        raise UsageError(
            f"--choices has {', '.join(given)}; it must have some of what is chosen here: {', '.join(takers)}"
        )
