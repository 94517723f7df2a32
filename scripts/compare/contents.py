"""The data of the page as JSON: curves, final values, configs and origins of the runs."""

import hashlib
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.special import stdtrit

from experiments.core.report.presentation import written
from experiments.core.report.results import Problem, Run
from scripts.compare.groups import Group, shown_first
from scripts.compare.series import AXES, curve, is_per_seed, rows_kept

Json = dict[str, Any]

BUDGET = 500_000  # numbers in all curves together, at most 3 MB of a page
_FEWEST, _MOST = 16, 2_000  # points of a curve
_NUMBERS_PER_POINT = 6  # mean, interval, row, and the places of the row on three axes


def contents(groups: Sequence[Group], problems: Sequence[Problem]) -> Json:
    """Returns the data of the page; the same groups give the same data."""
    by_experiment = [list(its) for _, its in itertools.groupby(groups, lambda group: group.experiment)]
    first = [group for its in by_experiment for group in shown_first(its)]
    groups = [group for its in by_experiment for group in sorted(its, key=lambda group: group not in first)]
    limit = _limit(groups)
    fields = {its[0].experiment: _differing(its) for its in by_experiment}
    of_groups = [_of_group(group, fields[group.experiment], limit) for group in groups]
    return {
        "metrics": metrics_of(groups),
        "mixed": len({group.own for group in groups}) > 1,
        "shown": [_id(group.runs[0]) for group in first],
        "groups": of_groups,
        "fields": fields,
        "problems": [{"name": problem.name, "reason": problem.reason} for problem in problems],
        "quantiles": _quantiles(groups),
    }


def metrics_of(groups: Iterable[Group]) -> list[str]:
    """Returns the names of all metrics: measured ones first, then training metrics, then those of a run as a whole."""
    names = dict.fromkeys(name for group in groups for name in group.series.metrics)

    def order(name: str) -> tuple[Any, ...]:
        parts = [(int(part), "") if part.isdigit() else (0, part) for part in name.split("/")]  # /10 comes after /2
        return not is_per_seed(name), is_per_seed(name) and name.startswith(("train", "hardened")), parts

    return sorted(names, key=order)


def _of_group(group: Group, fields: Sequence[str], limit: int) -> Json:
    return {
        "id": _id(group.runs[0]),
        "baseline": group.baseline and _id(group.baseline),
        "parts": group.parts,
        "experiment": group.experiment,
        "state": group.state,
        "done": group.done,
        "own": group.own,
        "seeds": group.seeds,
        "diverged": sum(run.summary["diverged"] for run in group.runs),
        "about": {
            name: "; ".join(dict.fromkeys(its))
            for name, its in zip(_ABOUT, zip(*map(_about, group.runs), strict=True), strict=True)
        },
        "config": {name: written(name, group.config[name]) for name in fields if name in group.config},
        "final": {name: _numbers(group.final(name), 7) for name in group.series.metrics},
        **_curves(group, limit),
    }


_ABOUT = ("run", "seeds", "training time", "commit", "data", "device")


def _about(run: Run) -> tuple[str, ...]:
    """Returns the origin and the course of a run, in the order of `_ABOUT`."""
    environment = run.environment or {}
    git, devices = environment.get("git") or {}, environment.get("devices") or {}
    commit = str(git.get("commit") or "-")[:10] + (" and changes" if git.get("dirty") else "")
    seeds = ", ".join(map(str, run.summary["seeds"]))
    device = f"{devices.get('count', '')} {devices.get('kind', '-')}"
    return run.name, seeds, f"{run.summary['seconds']:.3g} s", commit, run.data or "-", device.strip()


def _id(run: Run) -> str:
    """Returns a short id for the group of a run, which stays the same when the page is made again."""
    return hashlib.sha256(run.name.encode(errors="surrogateescape")).hexdigest()[:8]


def _limit(groups: Sequence[Group]) -> int:
    """Returns the most points of a curve."""
    curves = sum(len(group.series.metrics) for group in groups)
    return max(_FEWEST, min(_MOST, BUDGET // _NUMBERS_PER_POINT // max(curves, 1)))


def _curves(group: Group, limit: int) -> Json:
    """Returns `x`, the places of the drawn rows on the axes, and `curves`, the points of each at those rows."""
    values = group.series.values
    intervals = {name: curve(values[name]) for name in group.series.metrics}
    kept = {name: rows_kept(mean, limit) for name, (mean, _) in intervals.items() if not np.isnan(mean).all()}
    places = np.unique(np.concatenate([np.zeros(0, int), *kept.values()]))
    curves = {}
    for name, chosen in kept.items():
        mean, half = (values[chosen] for values in intervals[name])
        curves[name] = {"mean": _numbers(mean, 5)}
        if not np.isnan(half).all():
            curves[name]["half"] = _numbers(half, 3)
        if len(chosen) < len(places):
            curves[name]["rows"] = np.searchsorted(places, chosen).tolist()
    axes = {"step": group.series.steps, **{name: curve(values[name])[0] for name in AXES}}
    return {"x": {name: _numbers(its[places], 7) for name, its in axes.items()}, "curves": curves}


def _numbers(values: Iterable[float | None], digits: int) -> list[float | int | None]:
    """Rounds numbers to `digits` significant digits; None where there is no value."""
    rounded = (None if value is None or math.isnan(value) else float(f"{value:.{digits}g}") for value in values)
    return [
        int(value) if value is not None and value.is_integer() and abs(value) < 1e15 else value for value in rounded
    ]


def _differing(groups: Sequence[Group]) -> list[str]:
    """Returns the names of the fields in which the groups of an experiment differ."""
    names = sorted({name for group in groups for name in group.config})
    return [name for name in names if any(group.config.get(name) != groups[0].config.get(name) for group in groups)]


def _quantiles(groups: Iterable[Group]) -> list[float]:
    """Returns Student's t for intervals of 95 %, for each number of degrees of freedom from 1."""
    most = max((len(group.seeds) for group in groups), default=1)
    return [float(f"{stdtrit(n, 0.975):.8g}") for n in range(1, max(most, 2))]
