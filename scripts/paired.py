"""Differences between runs, seed by seed."""

from typing import Any

from experiments.core.summary import interval
from scripts.results import Run


def difference(run: Run, reference: Run, metric: str) -> dict[str, Any]:
    """Mean and interval of a final metric of `run` minus that of `reference`, over the seeds that both finished."""
    other = dict(zip(reference.summary["seeds"], reference.final(metric), strict=True))
    differences = []
    for seed, value in zip(run.summary["seeds"], run.final(metric), strict=True):
        subtracted = other.get(seed)
        differences.append(None if value is None or subtracted is None else value - subtracted)
    return interval(differences)
