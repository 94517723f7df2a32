"""The rows of runs as arrays: of one run, of several runs of one config, and as curves."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import stdtrit

from experiments.core.record.metrics import Row

_OF_THE_RUN = ("learning_rate", "performance", "epoch", "seconds")  # a row has one value of these for all seeds
AXES = ("epoch", "seconds")  # the axes besides the step; seconds are per seed, as seeds train together


@dataclasses.dataclass(frozen=True)
class Series:
    """The rows of a run.

    Attributes:
      seeds: the number of seeds.
      steps: the steps of the rows, [T].
      values: by name, [T, S] for a metric of each seed, [T, 1] for a value of the run; NaN where there is none. A
        nested metric has a name such as `test_accuracy/1`.
      final: by name, the values in the last row of each run.
    """

    seeds: int
    steps: np.ndarray
    values: Mapping[str, np.ndarray]
    final: Mapping[str, np.ndarray]

    @staticmethod
    def of(rows: Sequence[Row], seeds: Sequence[int]) -> "Series":
        """Returns the series of rows.

        Raises:
          ValueError, TypeError: a metric is anything but a number per seed.
        """
        values = {
            name: _numbers(name, values, len(seeds) if is_per_seed(name) else 1)
            for name, values in _columns(rows)
            if name not in ("step", "diverged")
        }
        steps = np.array([row["step"] for row in rows], float)
        if not set(AXES) <= values.keys() or len(np.unique(steps)) < len(steps):
            raise ValueError("rows have no epoch or seconds, or the same step twice")
        values["seconds"] = values["seconds"] / len(seeds)
        return Series(len(seeds), steps, values, {name: its[-1] for name, its in values.items()})

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics, without axes."""
        return [name for name in self.values if name not in AXES]


def is_per_seed(name: str) -> bool:
    """Returns whether a metric has a value for each seed, rather than one for the run."""
    return name.partition("/")[0] not in _OF_THE_RUN


def pool(members: Sequence[Series]) -> Series:
    """Joins runs of disjoint seeds, with the rows of all; a run is NaN at steps of which it has no row."""
    if len(members) == 1:
        return members[0]
    steps = np.unique(np.concatenate([member.steps for member in members]))
    values, final = {}, {}
    for name in dict.fromkeys(name for member in members for name in member.values):
        columns, ends = [], []
        for member in members:
            nothing = np.full((len(steps), member.seeds if is_per_seed(name) else 1), np.nan)
            ends.append(member.final.get(name, nothing[0]))
            if name in member.values:
                nothing[np.searchsorted(steps, member.steps)] = member.values[name]
            columns.append(nothing)
        values[name], final[name] = np.concatenate(columns, axis=1), np.concatenate(ends)
    return Series(sum(member.seeds for member in members), steps, values, final)


def curve(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean over seeds with a value and the half width of its 95 % interval; both [T], NaN without one."""
    count = (~np.isnan(values)).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(values, axis=1) / np.where(count, count, np.nan)
        freedom = np.where(count > 1, count - 1, np.nan)
        error = np.sqrt(np.nansum((values - mean[:, None]) ** 2, axis=1) / freedom / count)
        return mean, stdtrit(freedom, 0.975) * error


def rows_kept(values: np.ndarray, limit: int) -> np.ndarray:
    """Returns the indices of the `values` [T] to draw, at most `limit` (at least 4), in order.

    They are the first, the last, and the lowest and highest of equally long stretches in between. So every spike of the
    curve is drawn, at its place and full height.
    """
    if len(values) <= limit:
        return np.arange(len(values))
    edges = np.linspace(1, len(values) - 1, max(1, (limit - 2) // 2) + 1).astype(int)
    # A row of indices for each stretch; shorter stretches have their last index twice, which changes no extreme.
    stretches = np.minimum(edges[:-1, None] + np.arange(np.diff(edges).max()), edges[1:, None] - 1)
    by_stretch = values[stretches]
    known = ~np.isnan(by_stretch)
    ends = [np.where(known, by_stretch, np.inf).argmin(axis=1), np.where(known, by_stretch, -np.inf).argmax(axis=1)]
    each = np.arange(len(stretches))
    kept = [stretches[each, end][known.any(axis=1)] for end in ends]
    return np.unique(np.concatenate([[0, len(values) - 1], *kept]))


def _numbers(name: str, values: Sequence[Any], count: int) -> np.ndarray:
    """Returns a metric as an array [T, S]; NaN where a value is None or missing."""
    if is_per_seed(name):
        lists = [[None] * count if value is None else value for value in values]
        if {*map(type, lists)} != {list} or {*map(len, lists)} != {count}:
            raise ValueError(f"{name} has not one number per seed in every row")
        values = list(
            itertools.chain.from_iterable(lists)
        )  # NumPy reads a flat list several times faster than lists of lists
    numbers = np.array(values, float)
    if numbers.ndim > 1:
        raise ValueError(f"{name} has more than one number in a row")
    return numbers.reshape(-1, count)


def _columns(rows: Sequence[Mapping[str, Any]], prefix: str = "") -> Iterable[tuple[str, list[Any]]]:
    """Yields each leaf of the rows with its name and values; None where a row lacks it."""
    for name in dict.fromkeys([*rows[0], *rows[-1]]):
        values = [row.get(name) for row in rows]
        if any(isinstance(value, Mapping) for value in (values[0], values[-1])):
            yield from _columns([value or {} for value in values], f"{prefix}{name}/")
        else:
            yield prefix + name, values
