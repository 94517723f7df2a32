"""Differences between runs, seed by seed and example by example."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import bdtr, ndtri, stdtrit  # scipy.stats takes a second to import

from experiments.core.record.summary import interval
from experiments.core.report.results import Run

Metric = str | Callable[[Run], list[float | None]]  # the name of a final one, or what gives its values by seed
Worth = Callable[[Mapping[str, np.ndarray]], np.ndarray]  # of `Run.examples`, the values [S, N] that a metric averages


def difference(run: Run, reference: Run, metric: Metric, *, of_reference: Metric | None = None) -> dict[str, Any]:
    """Mean and interval of a metric of `run` minus that of `reference`, over the seeds that both finished.

    `of_reference` is the metric of the reference, where it is another.
    """
    return interval(_differences(run, reference, metric, of_reference or metric))


def minus(
    run: Run, reference: Run | None, metric: Metric, *, of_reference: Metric | None = None
) -> dict[str, Any] | None:
    """The same; None without a reference, and where one of the two has no such metric."""
    if reference is None or not (run.has(metric) and reference.has(of_reference or metric)):
        return None
    return difference(run, reference, metric, of_reference=of_reference)


def over_examples(run: Run, reference: Run, metric: str, worth: Worth) -> float | None:
    """Half width of the 95 % interval of that difference over examples, as if they were a random sample.

    Args:
      run, reference: evaluated on the same N examples, in one order.
      metric: the final one.
      worth: the value of each example, whose mean the metric is.

    Returns:
      The normal interval of the differences per example, each the mean over the seeds that both finished; None where
      nothing was kept of examples, or no seed is left.
    """
    if not run.examples or not reference.examples:
        return None
    finished = [value is not None for value in _differences(run, reference, metric, metric)]
    seeds = [seed for seed, both in zip(run.summary["seeds"], finished, strict=True) if both]
    if not seeds:
        return None
    mine, others = (dict(zip(r.summary["seeds"], worth(r.examples), strict=True)) for r in (run, reference))
    differences = np.mean([mine[seed] - others[seed] for seed in seeds], axis=0)
    return float(ndtri(0.975) * differences.std(ddof=1) / np.sqrt(len(differences)))


def detectable(difference: Mapping[str, Any] | None, power: float = 0.8) -> float | None:
    """The difference in truth that a paired t-test at 5 % would find with this power, by the spread of one measured.

    With the half width h of its 95 % interval over n seeds and quantiles t of n - 1 degrees of freedom it is
    `h (t(0.975) + t(power)) / t(0.975)`. None without an interval.
    """
    if difference is None or difference["interval95"] is None:
        return None
    freedom = sum(value is not None for value in difference["per_seed"]) - 1
    two_sided, one_sided = stdtrit(freedom, [0.975, power])
    return float(difference["interval95"] * (two_sided + one_sided) / two_sided)


def sign_test(differences: Mapping[str, Any]) -> tuple[int, int, float]:
    """Counts the seeds with a difference above 0, and all that differ; the two-sided p of as uneven a split by chance.

    It asks which is better in most runs, whatever a few lost ones do to a mean.
    """
    differing = [value for value in differences["per_seed"] if value]
    above, total = sum(value > 0 for value in differing), len(differing)
    return above, total, min(1.0, 2.0 * float(bdtr(min(above, total - above), total, 0.5)))


def _differences(run: Run, reference: Run, metric: Metric, of_reference: Metric) -> list[float | None]:
    """By seed of `run`; None for a seed that one of the two has no value of."""
    mine, others = (
        dict(zip(r.summary["seeds"], r.final(name) if isinstance(name, str) else name(r), strict=True))
        for r, name in ((run, metric), (reference, of_reference))
    )
    pairs = [(value, others.get(seed)) for seed, value in mine.items()]
    return [None if one is None or other is None else one - other for one, other in pairs]
