"""The rows of runs as frames, those of several runs of one config as one, and their curves."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from experiments.core.record.metrics import Row

_OF_THE_RUN = ("learning_rate", "performance", "epoch", "seconds")  # what a row says once, for all of its seeds
AXES = ("epoch", "seconds")  # besides the step; the seconds are those of training per seed, as seeds train together


@dataclasses.dataclass(frozen=True)
class Series:
    """The rows of a run.

    Attributes:
      rows: by step, with columns for name and seed; nested metrics are named as `test_accuracy/1`, and what a row says
        once has the first seed. NaN where there is no value.
      final: the values of the last row of each run, by name and seed.
    """

    rows: pd.DataFrame
    final: pd.Series

    @staticmethod
    def of(rows: Sequence[Row], seeds: Sequence[int]) -> "Series":
        """Raises `ValueError` or `TypeError` if a metric is anything but a number per seed."""
        columns: dict[tuple[str, int], np.ndarray] = {}
        for name, values in _columns(rows):
            whose = seeds if is_per_seed(name) else seeds[:1]
            if name not in ("step", "diverged"):
                columns |= zip([(name, seed) for seed in whose], _numbers(name, values, len(whose)).T, strict=True)
        found = pd.DataFrame(columns, index=pd.Index([row["step"] for row in rows], dtype=float))
        if not {(axis, seeds[0]) for axis in AXES} <= columns.keys() or not found.index.is_unique:
            raise ValueError("rows have no epoch or seconds, or the same step twice")
        found["seconds"] /= len(seeds)
        return Series(found, found.iloc[-1])

    @property
    def metrics(self) -> list[str]:
        """The names of what is measured."""
        return [name for name in dict.fromkeys(self.rows.columns.get_level_values(0)) if name not in AXES]


def is_per_seed(name: str) -> bool:
    """Whether a metric is measured for each seed, rather than once for the run."""
    return name.partition("/")[0] not in _OF_THE_RUN


def pool(members: Sequence[Series]) -> Series:
    """Runs of disjoint seeds as one, with the rows of them all: a step that a run has no row of lacks its seeds."""
    if len(members) == 1:
        return members[0]
    rows = pd.concat([member.rows for member in members], axis=1).sort_index()
    return Series(rows, pd.concat([member.final for member in members]))


def curve(values: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the seeds that have a value, and half width of its 95 % t-interval; each [T], NaN without a value."""
    count = values.count(axis=1).to_numpy()
    quantiles = stats.t.ppf(0.975, np.arange(-1, values.shape[1]))[count]
    return values.mean(axis=1).to_numpy(), quantiles * values.sem(axis=1).to_numpy()


def rows_kept(values: np.ndarray, limit: int) -> np.ndarray:
    """Which of `values` [T] to draw, at most `limit` (at least 4) of them, in order.

    Those are the first, the last, and of equally long stretches in between the lowest and the highest: every spike of
    the curve is drawn, in its place and at its full height.
    """
    if len(values) <= limit:
        return np.arange(len(values))
    edges = np.linspace(1, len(values) - 1, max(1, (limit - 2) // 2) + 1).astype(int)
    kept = {0, len(values) - 1}
    for start, stop in itertools.pairwise(edges):
        stretch = values[start:stop]
        if not np.isnan(stretch).all():
            kept |= {int(start + np.nanargmin(stretch)), int(start + np.nanargmax(stretch))}
    return np.array(sorted(kept))


def _numbers(name: str, values: Sequence[Any], count: int) -> np.ndarray:
    """A metric [T, S], one number a seed; None, also a row without it, as NaN."""
    each = values if is_per_seed(name) else [[value] for value in values]
    lists = [[None] * count if value is None else value for value in each]
    numbers = np.array(lists, float)
    if numbers.shape != (len(values), count):
        raise ValueError(f"{name} has not one number per seed in every row")
    return numbers


def _columns(rows: Sequence[Mapping[str, Any]], prefix: str = "") -> Iterable[tuple[str, list[Any]]]:
    """The leaves of the rows by name; None where a row lacks one."""
    for name in dict.fromkeys([*rows[0], *rows[-1]]):
        values = [row.get(name) for row in rows]
        if any(isinstance(value, Mapping) for value in (values[0], values[-1])):
            yield from _columns([value or {} for value in values], f"{prefix}{name}/")
        else:
            yield prefix + name, values
