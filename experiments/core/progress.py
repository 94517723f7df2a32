"""One line per row for whoever watches."""

import time

import numpy as np

from experiments.core.metrics import Row
from experiments.core.plan import Plan


class Progress:
    """Prints epoch or step, headline metrics (mean over seeds), speed and time left."""

    def __init__(self, headline: tuple[str, ...], plan: Plan, first_step: int, num_seeds: int):
        self._headline = headline
        self._plan = plan
        self._total = plan.count(plan.total_steps)
        self._first = plan.count(first_step)
        self._num_seeds = num_seeds
        self._start = time.monotonic()

    def show(self, row: Row) -> None:
        """Prints the line of a row; time left counts everything: training, evaluation, saving."""
        done = self._plan.count(row["step"])
        parts = [f"{self._plan.unit} {done:{len(str(self._total))}}/{self._total}"]
        for name in ("train_loss", *self._headline):
            values = [value for value in row[name] if value is not None]
            parts.append(f"{name} {np.mean(values):.4g}" if values else f"{name} -")
        if lost := sum(row["diverged"]):
            parts.append(f"{lost} of {self._num_seeds} seeds diverged")
        if done > self._first:
            left = (time.monotonic() - self._start) / (done - self._first) * (self._total - done)
            parts.append(f"{int(left) // 60}:{int(left) % 60:02d} left")
        print("  ".join(parts), flush=True)
