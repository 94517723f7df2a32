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
    return pd.DataFrame([_by_seed(run, metric) if run else pd.Series(dtype=float) for run in its], its.index)


def _by_seed(run: Run, metric: Metric) -> "pd.Series[float]":
    rows = metric(run) if callable(metric) else [run.finals[name] for name in fnmatch.filter(run.finals, metric)]
    return pd.DataFrame(rows, columns=run.summary["seeds"], dtype=float).mean(skipna=False)


def minus(runs: pd.DataFrame, references: Mapping[str, Run | None], metric: Metric) -> pd.DataFrame:
    """Returns a metric of each run minus that of its reference, by seed; NaN where one of the two has none."""
    others = pd.Series([references.get(name) for name in runs.index], runs.index, dtype=object)
    return final(runs, metric) - final(others, metric)


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
