"""Whether a contestant computes what it should, looked at before it is timed."""

from typing import Any, NamedTuple

import numpy as np

from scripts.bench.contestants import BOTH, FORWARD, Contestant, Inputs
from scripts.bench.oracle import expected

_ENTRIES = 20_000
"""Entries compared, at least one row."""


class Verdict(NamedTuple):
    """Outcome of the comparison with the oracle.

    Attributes:
      right: whether every error is within the contestant's tolerance.
      errors: per mode, largest absolute error of an output entry (``FORWARD``), or norm of the gradient's error over
        the norm of the gradient (``BOTH``). None where it is not a finite number, or not comparable.
      sum_error: ``|sum - k| / k`` of the worst row, for masks.
    """

    right: bool
    errors: dict[str, float | None]
    sum_error: float | None


def check(contestant: Contestant, inputs: Inputs, results: dict[str, Any]) -> Verdict:
    """Compares what a contestant's calls returned with the oracle, on rows spread over the batch."""
    batch, n, k = inputs.case
    rows = np.unique(np.linspace(0, batch - 1, max(1, min(batch, _ENTRIES // n))).astype(int))
    truth = expected(contestant.reference, inputs.x[rows], k, inputs.weights[rows])
    found = {mode: _array(result).reshape(batch, -1)[rows].astype(np.float64) for mode, result in results.items()}
    errors = {FORWARD: _finite(np.max(np.abs(found[FORWARD] - truth.output)))}
    if BOTH in found:
        difference = np.where(truth.decided, found[BOTH] - truth.gradient, 0.0)
        size = float(np.linalg.norm(truth.gradient)) or 1.0
        comparable = contestant.tolerance is not None
        errors[BOTH] = _finite(np.linalg.norm(difference) / size) if comparable else None
    sum_error = None
    if "mask" in contestant.reference.kind:
        sum_error = _finite(np.max(np.abs(found[FORWARD].sum(-1) - k)) / k)
    if contestant.tolerance is None:
        return Verdict(True, errors, sum_error)
    limits = dict(zip((FORWARD, BOTH), contestant.tolerance, strict=True))
    right = all(error is not None and error <= limits[mode] for mode, error in errors.items())
    return Verdict(right, errors, sum_error)


def _array(result: Any) -> np.ndarray:
    result = result[-1] if isinstance(result, tuple | list) else result
    return np.asarray(result.cpu() if hasattr(result, "cpu") else result)


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
