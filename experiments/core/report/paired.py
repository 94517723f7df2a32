"""Differences between runs, seed by seed."""

from typing import Any

import numpy as np
from scipy import stats

from experiments.core.record.summary import interval
from experiments.core.report.results import Run


def difference(run: Run, reference: Run, metric: str, *, of_reference: str | None = None) -> dict[str, Any]:
    """Mean and interval of a final metric of `run` minus that of `reference`, over the seeds that both finished.

    `of_reference` is the metric of the reference, where it is another.
    """
    return interval(_differences(run, reference, metric, of_reference or metric))


def significance(run: Run, reference: Run, metric: str) -> float | None:
    """The p-value of the paired t-test of that difference; None with fewer than two pairs, or where all are equal."""
    pairs = np.array([value for value in _differences(run, reference, metric, metric) if value is not None])
    if len(pairs) < 2 or not pairs.std():
        return None
    return float(stats.ttest_1samp(pairs, 0.0).pvalue)


def _differences(run: Run, reference: Run, metric: str, of_reference: str) -> list[float | None]:
    other = dict(zip(reference.summary["seeds"], reference.final(of_reference), strict=True))
    differences = []
    for seed, value in zip(run.summary["seeds"], run.final(metric), strict=True):
        subtracted = other.get(seed)
        differences.append(None if value is None or subtracted is None else value - subtracted)
    return differences
