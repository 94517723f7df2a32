"""The rows of runs as arrays, those of several runs of one config as one, and their curves."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import stdtrit

from experiments.core.record.metrics import Row

_OF_THE_RUN = ("learning_rate", "performance", "epoch", "seconds")  # what a row says once, for all of its seeds
AXES = ("epoch", "seconds")  # besides the step; the seconds are those of training per seed, as seeds train together


@dataclasses.dataclass(frozen=True)
class Series:
    """The rows of a run.

    Attributes:
      seeds: how many there are.
      steps: of the rows, [T].
      values: by name, [T, S] for what is measured of each seed, [T, 1] for what a row says once; nested metrics are
        named as `test_accuracy/1`. NaN where there is no value.
      final: by name, the values of the last row of each run.
    """

    seeds: int
    steps: np.ndarray
    values: Mapping[str, np.ndarray]
    final: Mapping[str, np.ndarray]

    @staticmethod
    def of(rows: Sequence[Row], seeds: Sequence[int]) -> "Series":
        """Raises `ValueError` or `TypeError` if a metric is anything but a number per seed."""
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
        """The names of what is measured."""
        return [name for name in self.values if name not in AXES]


def is_per_seed(name: str) -> bool:
    """Whether a metric is measured for each seed, rather than once for the run."""
    return name.partition("/")[0] not in _OF_THE_RUN


def pool(members: Sequence[Series]) -> Series:
    """Runs of disjoint seeds as one, with the rows of them all: a step that a run has no row of lacks its seeds."""
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
    """Mean over the seeds that have a value, and half width of its 95 % t-interval; each [T], NaN without a value."""
    count = (~np.isnan(values)).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(values, axis=1) / np.where(count, count, np.nan)
        freedom = np.where(count > 1, count - 1, np.nan)
        error = np.sqrt(np.nansum((values - mean[:, None]) ** 2, axis=1) / freedom / count)
        return mean, stdtrit(freedom, 0.975) * error


def rows_kept(values: np.ndarray, limit: int) -> np.ndarray:
    """Which of `values` [T] to draw, at most `limit` (at least 4) of them, in order.

    Those are the first, the last, and of equally long stretches in between the lowest and the highest: every spike of
    the curve is drawn, in its place and at its full height.
    """
    if len(values) <= limit:
        return np.arange(len(values))
    edges = np.linspace(1, len(values) - 1, max(1, (limit - 2) // 2) + 1).astype(int)
    # A row of places for each stretch; the last ones of shorter stretches are there twice, which changes no extreme.
    stretches = np.minimum(edges[:-1, None] + np.arange(np.diff(edges).max()), edges[1:, None] - 1)
    found = values[stretches]
    known = ~np.isnan(found)
    ends = [np.where(known, found, np.inf).argmin(axis=1), np.where(known, found, -np.inf).argmax(axis=1)]
    each = np.arange(len(stretches))
    kept = [stretches[each, end][known.any(axis=1)] for end in ends]
    return np.unique(np.concatenate([[0, len(values) - 1], *kept]))


def _numbers(name: str, values: Sequence[Any], count: int) -> np.ndarray:
    """A metric [T, S], one number a seed; None, also a row without it, as NaN."""
    if is_per_seed(name):
        lists = [[None] * count if value is None else value for value in values]
        if {*map(type, lists)} != {list} or {*map(len, lists)} != {count}:
            raise ValueError(f"{name} has not one number per seed in every row")
        values = list(itertools.chain.from_iterable(lists))  # a flat list is several times faster than lists of lists
    numbers = np.array(values, float)
    if numbers.ndim > 1:
        raise ValueError(f"{name} has more than one number in a row")
    return numbers.reshape(-1, count)


def _columns(rows: Sequence[Mapping[str, Any]], prefix: str = "") -> Iterable[tuple[str, list[Any]]]:
    """The leaves of the rows by name; None where a row lacks one."""
    for name in dict.fromkeys([*rows[0], *rows[-1]]):
        values = [row.get(name) for row in rows]
        if any(isinstance(value, Mapping) for value in (values[0], values[-1])):
            yield from _columns([value or {} for value in values], f"{prefix}{name}/")
        else:
            yield prefix + name, values
