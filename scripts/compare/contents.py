"""What the page holds: curves, final values, configs and where runs come from, as JSON."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from etils import epy

from experiments.core.report.identity import is_bookkeeping
from experiments.core.report.results import Problem, Run
from scripts.compare import downsample
from scripts.compare.groups import Group, shown, varying
from scripts.compare.pictures import pictures
from scripts.compare.series import Curve, Series

with epy.lazy_imports():  # --help does without it
    from scipy import stats

Json = dict[str, Any]

# Numbers in all curves together: pages stay below 10 MB, of which Plotly is the half.
BUDGET = 600_000
_BYTES = 7  # of a number, about
_FEWEST, _MOST = 16, 2_000  # points of a curve
_NUMBERS_PER_POINT = 6.5  # mean, interval, row, the places of that row on three axes, half an average
_LEVELS = (0.05, 0.01, 0.001)


@dataclasses.dataclass(frozen=True)
class Reported:
    """A number that the paper states, drawn as a line beside the runs of its experiment.

    Attributes:
      experiment: as `Group.experiment`.
      metric: of the rows.
      value: in the units of the metric.
      label: what the paper says it is of.
    """

    experiment: str
    metric: str
    value: float
    label: str


def contents(groups: Sequence[Group], problems: Sequence[Problem], reported: Sequence[Reported] = ()) -> Json:
    """The data of the page; the same groups give the same."""
    seen = pictures([run for group in sorted(groups, key=lambda group: group.trial) for run in group.runs])
    limit = _limit(groups, len(json.dumps(seen)))
    curves = [_curves(group, limit) for group in groups]
    configs = [group.config for group in groups]
    differing = varying(configs)
    mixed = len({group.own for group in groups}) > 1
    return {
        "metrics": metrics_of(groups),
        "groups": [
            {
                "id": _id(group.runs[0]),
                "baseline": group.baseline and _id(group.baseline),
                "label": group.label,
                "parts": group.parts,
                "experiment": group.experiment,
                "state": group.state,
                "done": group.done,
                "own": group.own and mixed,
                "trial": group.trial,
                "runs": [run.name for run in group.runs],
                "seeds": list(group.series.seeds),
                "diverged": sum(run.summary["diverged"] for run in group.runs),
                "fields": {name: group.config[name] for name in differing if name in group.config},
                "final": _final(group.series),
                **drawn,
            }
            for group, drawn in zip(groups, curves, strict=True)
        ],
        "fields": {name: [shown(name, config.get(name)) for config in configs] for name in differing},
        "bookkeeping": [name for name in differing if is_bookkeeping(name)],
        "common": {name: shown(name, value) for name, value in _common(configs).items()},
        "runs": [_provenance(run) for group in groups for run in group.runs],
        "problems": [{"name": problem.name, "reason": problem.reason} for problem in problems],
        "reported": [dataclasses.asdict(number) for number in reported],
        "pictures": seen,
        "points": _points(groups, curves),
        "quantiles": _quantiles(groups),
        "levels": _LEVELS,
    }


def _id(run: Run) -> str:
    """Names a group by its first run: short, and the same on the page that is made when the runs have gone on."""
    return hashlib.sha256(run.name.encode(errors="surrogateescape")).hexdigest()[:8]


def metrics_of(groups: Iterable[Group]) -> list[Json]:
    """All there are, those of the run as a whole last; measured ones before the loss that was minimised."""
    measured = dict.fromkeys(name for group in groups for name in group.series.metrics)
    order = sorted(measured, key=lambda name: (name.startswith(("train", "hardened")), _natural(name)))
    whole = sorted(dict.fromkeys(name for group in groups for name in group.series.of_the_run))
    return [{"name": name, "per_seed": True} for name in order] + [{"name": name, "per_seed": False} for name in whole]


def _natural(name: str) -> list[tuple[int, str]]:
    """So that `accuracy/10` comes after `accuracy/2`."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in name.split("/")]


def _limit(groups: Sequence[Group], size: int) -> int:
    """Points that a curve may have, where so many bytes are taken by pictures."""
    curves = sum(len(group.series.metrics) + len(group.series.of_the_run) for group in groups)
    return max(_FEWEST, min(_MOST, int((BUDGET - size / _BYTES) / _NUMBERS_PER_POINT / max(curves, 1))))


def _curves(group: Group, limit: int) -> Json:
    """`x`: places of the rows on the axes; `curves`: the points of each, as indices of those rows."""
    series = group.series
    drawn, kept = {}, set()
    for name, values in {**series.metrics, **series.of_the_run}.items():
        curve = Curve.of(values)
        if np.isnan(curve.mean).all():
            continue
        rows = downsample.rows_kept(curve.mean, limit)
        smooth = downsample.averages(curve.mean, limit) if len(rows) < len(curve.mean) else None
        drawn[name] = (curve, rows, smooth)
        kept |= set(rows.tolist()) | (set(smooth[0].tolist()) if smooth else set())
    places = np.array(sorted(kept), int)
    index = {row: i for i, row in enumerate(places.tolist())}
    curves = {}
    for name, (curve, rows, smooth) in drawn.items():
        points: Json = {"mean": _numbers(curve.mean[rows], 5)}
        if not np.isnan(curve.half[rows]).all():
            points["half"] = _numbers(curve.half[rows], 3)
        if len(rows) < len(places):
            points["rows"] = [index[row] for row in rows.tolist()]
        if smooth:
            points["averages"] = {"rows": [index[row] for row in smooth[0].tolist()], "mean": _numbers(smooth[1], 5)}
        curves[name] = points
    axes = {"step": series.step, "epoch": series.epoch, "seconds": series.seconds}
    return {"x": {name: _numbers(values[places], 7) for name, values in axes.items()}, "curves": curves}


def _numbers(values: np.ndarray, digits: int) -> list[float | int | None]:
    """To so many digits, and None where there is no value."""
    result: list[float | int | None] = []
    for value in values.tolist():
        if math.isnan(value):
            result.append(None)
        else:
            rounded = float(f"{value:.{digits}g}")
            result.append(int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded)
    return result


def _final(series: Series) -> Json:
    """The last value of every metric, by seed (or run), at whatever step its run has come to."""
    metrics = {**series.metrics, **series.of_the_run}
    return {name: _numbers(series.final[name], 9) for name, values in metrics.items() if not np.isnan(values).all()}


def _common(configs: Sequence[Json]) -> Json:
    """The fields that all have the same value of."""
    differing = set(varying(configs))
    return {name: value for name, value in configs[0].items() if name not in differing} if configs else {}


def _points(groups: Sequence[Group], curves: Sequence[Json]) -> Json:
    """How many points are drawn of how many there are."""
    drawn = sum(len(curve["mean"]) for item in curves for curve in item["curves"].values())
    total = sum(len(group.series.step) * len(item["curves"]) for group, item in zip(groups, curves, strict=True))
    return {"drawn": drawn, "total": total}


def _quantiles(groups: Iterable[Group]) -> list[list[float]]:
    """Of Student's t, two-sided, by degrees of freedom from 1 and level."""
    most = max((len(group.series.seeds) for group in groups), default=1)
    return [[float(f"{stats.t.ppf(1 - level / 2, n):.8g}") for level in _LEVELS] for n in range(1, max(most, 2))]


def _provenance(run: Run) -> Json:
    """Where a run comes from and how it ended; None for what was not recorded."""
    environment = run.environment or {}
    git, devices = environment.get("git") or {}, environment.get("devices") or {}
    machine = environment.get("machine") or {}
    resumed = environment.get("resumed")
    command = environment.get("command")
    return {
        "name": run.name,
        "state": run.state,
        "reason": run.reason,
        "diverged": run.summary["diverged"],
        "seeds": run.summary["seeds"],
        "steps": run.summary["steps"],
        "seconds": run.summary["seconds"],
        "started": environment.get("started"),
        "resumed": None if resumed is None else len(resumed),
        "commit": git.get("commit"),
        "dirty": git.get("dirty"),
        "device": devices.get("kind"),
        "devices": devices.get("count"),
        "machine": machine.get("cpu"),
        "versions": {"python": environment.get("python"), **(environment.get("packages") or {})} if environment else {},
        "command": " ".join(map(str, command)) if command else None,
        "overrides": environment.get("overrides") or {},
    }
