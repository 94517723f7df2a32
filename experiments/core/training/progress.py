"""One line per row for whoever watches, and others where rows are far between."""

import time
from collections.abc import Callable

import numpy as np

from experiments.core.pace import pace
from experiments.core.record.metrics import Row, flatten
from experiments.core.training.plan import Plan

_PATIENCE = 30.0  # seconds without a line


class Progress:
    """Prints epoch or step, headline metrics (mean over seeds), seeds lost, rate and time left."""

    def __init__(
        self,
        headline: tuple[str, ...],
        plan: Plan,
        first_step: int,
        num_seeds: int,
        say: Callable[[str], None] = lambda line: print(line, flush=True),
    ):
        self._headline = headline
        self._say = say
        self._plan = plan
        self._total = plan.count(plan.total_steps)
        self._first = plan.count(first_step)
        self._num_seeds = num_seeds
        self._start = self._last = time.monotonic()

    def show(self, row: Row) -> None:
        """Prints the line of a row; time left counts everything: training, evaluation, saving."""
        parts, metrics = [], dict(flatten(row))
        for name in ("train_loss", *self._headline):
            values = [value for value in metrics[name] if value is not None]
            parts.append(f"{name} {np.mean(values):.4g}" if values else f"{name} -")
        if lost := sum(row["diverged"]):
            parts.append(f"{lost} of {self._num_seeds} seeds diverged")
        self._print(row["step"], parts)

    def warm(self, step: int) -> None:
        """Takes the first call, up to `step`, out of the count: there is much in it that no other has to do.

        Where it took long, that is little beside the rest, and better counted than not known.
        """
        if time.monotonic() - self._start < _PATIENCE:
            self._start, self._first = time.monotonic(), self._plan.count(step)

    def reached(self, step: int) -> None:
        """Prints a line after a step without a row, if there has been none for a while."""
        if time.monotonic() - self._last > _PATIENCE:
            self._print(step, [])

    def _print(self, step: int, parts: list[str]) -> None:
        self._last = time.monotonic()
        done = self._plan.count(step)
        line = [f"{self._plan.unit} {done:{len(str(self._total))}}/{self._total}", *parts]
        if done > self._first:
            line.append(pace(done - self._first, self._total - self._first, self._last - self._start))
        self._say("  ".join(line))
