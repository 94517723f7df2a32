"""Differences between runs, seed by seed and example by example."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import bdtr, ndtri, stdtrit  # scipy.stats takes a second to import

from experiments.core.record.summary import interval
from experiments.core.report.results import Run

Metric = str | Callable[[Run], list[float | None]]  # the name of a metric at the end, or its values by seed
ExampleMetric = Callable[[Mapping[str, np.ndarray]], np.ndarray]  # `Run.examples` to the values [S, N] of a metric


def difference(run: Run, reference: Run, metric: Metric) -> dict[str, Any]:
    """Returns the interval of a metric of `run` minus that of `reference`, over the seeds that both finished."""
    return interval(_differences(run, reference, metric))


def minus(run: Run, reference: Run | None, metric: Metric) -> dict[str, Any] | None:
    """Returns the `difference`, or None without a reference or where one of the two has no such metric."""
    if reference is None or not (run.has(metric) and reference.has(metric)):
        return None
    return difference(run, reference, metric)


def half_width_over_examples(run: Run, reference: Run, metric: Metric, per_example: ExampleMetric) -> float | None:
    """Returns the half width of the 95 % interval of the difference over examples, as if they were a random sample.

    Args:
      run, reference: two runs, evaluated on the same N examples in the same order.
      metric: the metric at the end, which tells the seeds that both finished.
      per_example: its value for each example.

    Returns:
      The half width of the normal interval of the differences per example, each a mean over the seeds that both
      finished; None where a run kept no examples, or no seed is left.
    """
    if not run.examples or not reference.examples:
        return None
    finished = [value is not None for value in _differences(run, reference, metric)]
    seeds = [seed for seed, both in zip(run.summary["seeds"], finished, strict=True) if both]
    if not seeds:
        return None
    mine, others = (dict(zip(r.summary["seeds"], per_example(r.examples), strict=True)) for r in (run, reference))
    differences = np.mean([mine[seed] - others[seed] for seed in seeds], axis=0)
    return float(ndtri(0.975) * differences.std(ddof=1) / np.sqrt(len(differences)))


def detectable(difference: Mapping[str, Any] | None, power: float = 0.8) -> float | None:
    """Returns the true difference that a paired t-test at 5 % finds with this power, by the spread of a measured one.

    It is `h (t(0.975) + t(power)) / t(0.975)`, where h is the half width of the 95 % interval over n seeds, and t are
    quantiles of Student's distribution with n - 1 degrees of freedom. None without an interval.
    """
    if difference is None or difference["interval95"] is None:
        return None
    freedom = sum(value is not None for value in difference["per_seed"]) - 1
    two_sided, one_sided = stdtrit(freedom, [0.975, power])
    return float(difference["interval95"] * (two_sided + one_sided) / two_sided)


def sign_test(differences: Mapping[str, Any]) -> tuple[int, int, float]:
    """Returns the number of seeds with a difference above 0, the number that differ, and the p of the sign test.

    The test is two-sided. It asks which run is higher for most seeds, whatever a few lost seeds do to a mean.
    """
    differing = [value for value in differences["per_seed"] if value]
    above, total = sum(value > 0 for value in differing), len(differing)
    return above, total, min(1.0, 2.0 * float(bdtr(min(above, total - above), total, 0.5)))


def _differences(run: Run, reference: Run, metric: Metric) -> list[float | None]:
    """Returns the difference for each seed of `run`; None where one of the two has no value for the seed."""
    mine, others = (
        dict(zip(r.summary["seeds"], r.final(metric) if isinstance(metric, str) else metric(r), strict=True))
        for r in (run, reference)
    )
    pairs = [(value, others.get(seed)) for seed, value in mine.items()]
    return [None if one is None or other is None else one - other for one, other in pairs]
