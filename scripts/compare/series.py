"""The rows of runs as arrays, and those of several runs of one config as one."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epy

from experiments.core.record.metrics import Row

with epy.lazy_imports():  # --help does without it
    from scipy import stats

# What a row says once, for all of its seeds.
OF_THE_RUN = ("learning_rate", "performance")
_AXES = ("step", "epoch", "seconds")


@dataclasses.dataclass(frozen=True)
class Series:
    """The rows of a run.

    Attributes:
      seeds: of the run [S].
      step, epoch, seconds: [T]; the seconds are those of training per seed, as seeds train together.
      metrics: [T, S] by name, nested ones as `test_accuracy/1`; NaN where there is no value.
      of_the_run: the same [T, 1], of what is not measured per seed.
      final: [S] or [1] by name, the values of both in the last row of each run.
    """

    seeds: Sequence[int]
    step: np.ndarray
    epoch: np.ndarray
    seconds: np.ndarray
    metrics: dict[str, np.ndarray]
    of_the_run: dict[str, np.ndarray]
    final: dict[str, np.ndarray]

    @staticmethod
    def of(rows: Sequence[Row], seeds: Sequence[int]) -> "Series":
        """Raises `ValueError` or `TypeError` if a metric is anything but a number per seed."""
        axes = {name: _column(name, [row[name] for row in rows]) for name in _AXES}
        metrics, of_the_run = {}, {}
        for name, values in _columns(rows):
            top = name.partition("/")[0]
            if top in (*_AXES, "diverged"):
                continue
            if top in OF_THE_RUN:
                of_the_run[name] = _column(name, values)[:, None]
            else:
                metrics[name] = _per_seed(name, values, len(seeds))
        final = {name: values[-1] for name, values in {**metrics, **of_the_run}.items()}
        return Series(seeds, axes["step"], axes["epoch"], axes["seconds"] / len(seeds), metrics, of_the_run, final)


@dataclasses.dataclass(frozen=True)
class Curve:
    """A metric in the course of training: one value per row [T].

    Attributes:
      mean: over the seeds that have a value; NaN where none has.
      half: half width of the 95 % t-interval; NaN with fewer than two seeds.
      count: of those seeds.
    """

    mean: np.ndarray
    half: np.ndarray
    count: np.ndarray

    @staticmethod
    def of(values: np.ndarray) -> "Curve":
        """Of a metric [T, S]."""
        present = ~np.isnan(values)
        count = present.sum(axis=1)
        total = np.where(present, values, 0.0).sum(axis=1)
        mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        squares = np.where(present, (values - mean[:, None]) ** 2, 0.0).sum(axis=1)
        deviation = np.sqrt(squares / np.maximum(count - 1, 1))
        return Curve(mean, _quantiles(values.shape[1])[count] * deviation / np.sqrt(np.maximum(count, 1)), count)


@functools.cache
def _quantiles(most: int) -> np.ndarray:
    """Of Student's t at 97.5 %, by the number of seeds, up to so many; NaN where they make no interval."""
    quantiles = np.full(most + 1, np.nan)
    quantiles[2:] = stats.t.ppf(0.975, np.arange(1, most))
    return quantiles


def pool(members: Sequence[Series]) -> Series:
    """Runs of disjoint seeds as one, with the rows of them all: a step that a run has no row of lacks its seeds."""
    if len(members) == 1:
        return members[0]
    step = np.unique(np.concatenate([member.step for member in members]))
    places = [np.searchsorted(step, member.step) for member in members]

    def joined(arrays: Sequence[np.ndarray | None], widths: Sequence[int]) -> np.ndarray:
        columns = []
        for array, place, width in zip(arrays, places, widths, strict=True):
            column = np.full((len(step), width), np.nan)
            if array is not None:
                column[place] = array
            columns.append(column)
        return np.concatenate(columns, axis=1)

    ones = [1] * len(members)
    widths = [len(member.seeds) for member in members]

    def all_of(attribute: str, widths: Sequence[int]) -> dict[str, np.ndarray]:
        found = [getattr(member, attribute) for member in members]
        names = dict.fromkeys(name for metrics in found for name in metrics)
        return {name: joined([metrics.get(name) for metrics in found], widths) for name in names}

    def ends(names: Iterable[str], widths: Sequence[int]) -> dict[str, np.ndarray]:
        absent = [np.full(width, np.nan) for width in widths]
        return {
            name: np.concatenate([member.final.get(name, none) for member, none in zip(members, absent, strict=True)])
            for name in names
        }

    metrics, of_the_run = all_of("metrics", widths), all_of("of_the_run", ones)
    return Series(
        seeds=[seed for member in members for seed in member.seeds],
        step=step,
        epoch=Curve.of(joined([member.epoch[:, None] for member in members], ones)).mean,
        seconds=Curve.of(joined([member.seconds[:, None] for member in members], ones)).mean,
        metrics=metrics,
        of_the_run=of_the_run,
        final=ends(metrics, widths) | ends(of_the_run, ones),
    )


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
        try:
            values = [row[name] for row in rows]  # faster than `get`, and rows come in millions
        except LookupError:
            values = [row.get(name) for row in rows]
        if any(isinstance(value, Mapping) for value in (values[0], values[-1])):
            result += _columns([value or {} for value in values], f"{prefix}{name}/")
        else:
            result.append((prefix + name, values))
    return result
