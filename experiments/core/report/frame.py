"""Runs as pandas frames: a row for each run; of a metric, a column for each seed, by which runs are paired.

A frame of runs is indexed by their names. It has the fields of their configs by dotted name, the `Run` itself as `run`,
and its numbers of `seeds` and of `diverged` ones.
"""

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from scipy.special import bdtr, stdtrit  # scipy.stats takes a second to import

from experiments.core.record.summary import interval
from experiments.core.report.results import Run

Numbers = dict[str, Any]  # an interval (`summary.interval`)
# The name of a metric at the end, in which a `*` stands for anything, or rows of values by seed: their mean is meant.
Metric = str | Callable[[Run], list[list[float | None]]]


def frame(runs: Sequence[Run], columns: Callable[[Run], dict[str, Any]] = lambda run: {}) -> pd.DataFrame:
    """Returns runs as a frame, with more `columns`; a field that a run does not have is None."""
    counted = ({"seeds": len(run.summary["seeds"]), "diverged": run.summary["diverged"]} for run in runs)
    rows = [run.fields | columns(run) | counts | {"run": run} for run, counts in zip(runs, counted, strict=True)]
    made = pd.DataFrame(rows, [run.name for run in runs], dtype=object)
    return made.where(made.notna(), None).infer_objects()


def final(runs: "pd.DataFrame | pd.Series[Any]", metric: Metric) -> pd.DataFrame:
    """Returns a metric at the end of training: a row for each run, a column for each seed.

    It is NaN where there is no value: without the run, the metric or such a seed, or where the seed has diverged.
    """
    its = runs["run"] if isinstance(runs, pd.DataFrame) else runs
    none = pd.Series(dtype=float)
    return pd.DataFrame([_by_seed(run, metric) if isinstance(run, Run) else none for run in its], its.index)


def _by_seed(run: Run, metric: Metric) -> "pd.Series[float]":
    if callable(metric):
        rows = metric(run)
    else:
        names = [metric] if metric in run.finals else fnmatch.filter(run.finals, metric)
        rows = [run.finals[name] for name in names]
    return pd.DataFrame(rows, columns=run.summary["seeds"], dtype=float).mean(skipna=False)


def history(run: Run, metric: str, by: str = "epoch") -> pd.DataFrame:
    """Returns a metric in all rows of a run, by epoch or step, with a column for each seed."""
    places = [row[by] for row in run.rows]
    return pd.DataFrame([row[metric] for row in run.rows], places, run.summary["seeds"], dtype=float)


def first_where(reached: pd.DataFrame) -> "pd.Series[float]":
    """Returns by column the first place in which something is so; NaN where it never is."""
    return reached.idxmax().where(reached.any())


def minus(runs: pd.DataFrame, references: Mapping[str, Run | None], metric: Metric) -> pd.DataFrame:
    """Returns a metric of each run minus that of its reference, by seed; NaN where one of the two has none."""
    return final(runs, metric) - final(runs.index.to_series().map(references), metric)


def difference(run: Run, reference: Run, metric: Metric) -> Numbers:
    """Returns the interval of a metric of `run` minus that of `reference`, over the seeds that both finished."""
    one, other = (_by_seed(it, metric) for it in (run, reference))
    return over_seeds((one - other).reindex(run.summary["seeds"]))


def over_seeds(values: Iterable[float | None]) -> Numbers:
    """Returns the interval of values by seed, of which some may be None or NaN."""
    return interval([None if pd.isna(value) else value for value in values])


def intervals(values: pd.DataFrame) -> "pd.Series[Any]":
    """Returns the interval over seeds of each row."""
    return pd.Series([over_seeds(row) for row in values.to_numpy()], values.index, dtype=object)


def detectable(difference: Numbers, power: float = 0.8) -> float | None:
    """Returns the true difference that a paired t-test at 5 % finds with this power, by the spread of a measured one.

    It is `h (t(0.975) + t(power)) / t(0.975)`, where h is the half width of the 95 % interval over n seeds, and t are
    quantiles of Student's distribution with n - 1 degrees of freedom. None without an interval.
    """
    if difference["interval95"] is None:
        return None
    freedom = sum(value is not None for value in difference["per_seed"]) - 1
    two_sided, one_sided = stdtrit(freedom, [0.975, power])
    return float(difference["interval95"] * (two_sided + one_sided) / two_sided)


def sign_test(differences: "pd.Series[float]") -> tuple[int, int, float]:
    """Returns the number of seeds with a difference above 0, the number that differ, and the p of the sign test.

    The test is two-sided. It asks which run is higher for most seeds, whatever a few lost seeds do to a mean.
    """
    above, total = int((differences > 0).sum()), int((differences != 0).sum() - differences.isna().sum())
    return above, total, min(1.0, 2.0 * float(bdtr(min(above, total - above), total, 0.5)))
