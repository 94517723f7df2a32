"""The last row of a run, with means and intervals over the seeds."""

from typing import Any

import numpy as np

from experiments.core.record.metrics import Row

# Fields of a row that describe the run rather than the network: no metrics.
PROGRESS = ("epoch", "step", "seconds", "diverged", "learning_rate", "performance")


def interval(values: list[float | None]) -> dict[str, Any]:
    """Mean and half width of the 95 % t-interval, over the seeds that have a value."""
    numbers = np.array([value for value in values if value is not None])
    n = len(numbers)
    half: float | None = None
    if n > 1:
        from scipy.special import stdtrit  # only here: it takes a second to import, and a run needs it at its end

        half = float(stdtrit(n - 1, 0.975) * numbers.std(ddof=1) / np.sqrt(n))
    return {
        "per_seed": values,
        "mean": float(numbers.mean()) if n else None,
        "interval95": half,
    }


def summarize(seeds: list[int], row: Row) -> dict[str, Any]:
    """The contents of summary.json: intervals are half widths, errors are in percent."""

    def intervals(values: Any) -> Any:
        nested = isinstance(values, dict)
        return {name: intervals(value) for name, value in values.items()} if nested else interval(values)

    result = {
        "state": "done",
        "seeds": seeds,
        "diverged": sum(row["diverged"]),
        "epochs": row["epoch"],
        "steps": row["step"],
        "seconds": row["seconds"],
        "final": {name: intervals(value) for name, value in row.items() if name not in PROGRESS},
    }
    return result | ({"performance": row["performance"]} if "performance" in row else {})
