"""The rows of runs as arrays, and those of several runs of one config as one."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from experiments.core.record.metrics import Row

# What a row says once, for all of its seeds.
_OF_THE_RUN = ("learning_rate", "performance")
_AXES = ("step", "epoch", "seconds")


@dataclasses.dataclass(frozen=True)
class Series:
    """The rows of a run.

    Attributes:
      seeds: of the run [S].
      step, epoch, seconds: [T]; the seconds are those of training per seed, as seeds train together.
      metrics: [T, S] by name, nested ones as `test_accuracy/1`, or [T, 1] where a row has one number for all seeds; NaN
        where there is no value.
      final: [S] or [1] by name, the values in the last row of each run.
    """

    seeds: Sequence[int]
    step: np.ndarray
    epoch: np.ndarray
    seconds: np.ndarray
    metrics: dict[str, np.ndarray]
    final: dict[str, np.ndarray]

    @staticmethod
    def of(rows: Sequence[Row], seeds: Sequence[int]) -> "Series":
        """Raises `ValueError` or `TypeError` if a metric is anything but a number per seed."""
        axes = {name: _column(name, [row[name] for row in rows]) for name in _AXES}
        metrics = {
            name: _per_seed(name, values, len(seeds)) if is_per_seed(name) else _column(name, values)[:, None]
            for name, values in _columns(rows)
            if name.partition("/")[0] not in (*_AXES, "diverged")
        }
        final = {name: values[-1] for name, values in metrics.items()}
        return Series(seeds, axes["step"], axes["epoch"], axes["seconds"] / len(seeds), metrics, final)


@dataclasses.dataclass(frozen=True)
class Curve:
    """A metric in the course of training: one value per row [T].

    Attributes:
      mean: over the seeds that have a value; NaN where none has.
      half: half width of the 95 % t-interval; NaN with fewer than two seeds.
    """

    mean: np.ndarray
    half: np.ndarray

    @staticmethod
    def of(values: np.ndarray) -> "Curve":
        """The curve of a metric [T, S]."""
        present = ~np.isnan(values)
        count = present.sum(axis=1)
        total = np.where(present, values, 0.0).sum(axis=1)
        mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        squares = np.where(present, (values - mean[:, None]) ** 2, 0.0).sum(axis=1)
        deviation = np.sqrt(squares / np.maximum(count - 1, 1))
        return Curve(mean, _quantiles(values.shape[1])[count] * deviation / np.sqrt(np.maximum(count, 1)))


def is_per_seed(name: str) -> bool:
    """Whether a metric is measured for each seed, rather than once for the run."""
    return name.partition("/")[0] not in _OF_THE_RUN


def pool(members: Sequence[Series]) -> Series:
    """Runs of disjoint seeds as one, with the rows of them all: a step that a run has no row of lacks its seeds."""
    if len(members) == 1:
        return members[0]
    step = np.unique(np.concatenate([member.step for member in members]))
    places = [np.searchsorted(step, member.step) for member in members]
    names = dict.fromkeys(name for member in members for name in member.metrics)

    def absent(member: Series, name: str, *shape: int) -> np.ndarray:
        return np.full((*shape, len(member.seeds) if is_per_seed(name) else 1), np.nan)

    def spread(member: Series, place: np.ndarray, name: str) -> np.ndarray:
        column = absent(member, name, len(step))
        if name in member.metrics:
            column[place] = member.metrics[name]
        return column

    def mean(columns: Sequence[np.ndarray]) -> np.ndarray:
        """The mean over the runs that have a row of the step."""
        joined = np.full((len(step), len(members)), np.nan)
        for i, (place, column) in enumerate(zip(places, columns, strict=True)):
            joined[place, i] = column
        return Curve.of(joined).mean

    return Series(
        seeds=[seed for member in members for seed in member.seeds],
        step=step,
        epoch=mean([member.epoch for member in members]),
        seconds=mean([member.seconds for member in members]),
        metrics={
            name: np.hstack([spread(member, place, name) for member, place in zip(members, places, strict=True)])
            for name in names
        },
        final={name: np.concatenate([m.final.get(name, absent(m, name)) for m in members]) for name in names},
    )


def rows_kept(values: np.ndarray, limit: int) -> np.ndarray:
    """Which of `values` [T] to draw, at most `limit` (at least 4) of them, in order.

    Those are the first, the last, and of equally long stretches in between the lowest and the highest: every spike of
    the curve is drawn, in its place and at its full height.
    """
    if len(values) <= limit:
        return np.arange(len(values))
    edges = np.linspace(1, len(values) - 1, max(1, (limit - 2) // 2) + 1).astype(int)
    offsets = np.arange(np.diff(edges).max())
    inside = offsets < np.diff(edges)[:, None]
    rows = np.where(inside, edges[:-1, None] + offsets, edges[:-1, None])
    stretches = np.where(inside, values[rows], np.nan)
    lowest = np.where(np.isnan(stretches), np.inf, stretches).argmin(axis=1)
    highest = np.where(np.isnan(stretches), -np.inf, stretches).argmax(axis=1)
    some = ~np.isnan(stretches).all(axis=1)
    found = [rows[some, column[some]] for column in (lowest, highest)]
    return np.unique(np.concatenate([[0, len(values) - 1], *found]))


@functools.cache
def _quantiles(most: int) -> np.ndarray:
    """Student's t at 97.5 % by the number of seeds, up to `most`; NaN where they make no interval."""
    quantiles = np.full(most + 1, np.nan)
    quantiles[2:] = stats.t.ppf(0.975, np.arange(1, most))
    return quantiles


def _column(name: str, values: Sequence[Any]) -> np.ndarray:
    """Metrics that rows have once, [T]; None as NaN."""
    column = np.array(values, float)
    if column.ndim != 1:
        raise ValueError(f"{name} is not one number in every row")
    return column


def _per_seed(name: str, values: list[Any], num_seeds: int) -> np.ndarray:
    """A metric [T, S]; None, a row without it, as NaN."""
    if None in values:
        values = [[None] * num_seeds if value is None else value for value in values]
    if set(map(len, values)) != {num_seeds}:
        raise ValueError(f"{name} has not one value per seed in every row")
    numbers = list(itertools.chain.from_iterable(values))  # flat, which NumPy reads several times faster
    return np.array(numbers, float).reshape(len(values), num_seeds)


def _columns(rows: Sequence[Mapping[str, Any]], prefix: str = "") -> list[tuple[str, list[Any]]]:
    """The leaves of the rows by name; None where a row lacks one."""
    result: list[tuple[str, list[Any]]] = []
    for name in dict.fromkeys([*rows[0], *rows[-1]]):
        values = [row.get(name) for row in rows]
        if any(isinstance(value, Mapping) for value in (values[0], values[-1])):
            result += _columns([value or {} for value in values], f"{prefix}{name}/")
        else:
            result.append((prefix + name, values))
    return result
