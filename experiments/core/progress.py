"""One line per epoch for whoever watches."""

import time

import numpy as np

from experiments.core.metrics import Row


class Progress:
    """Prints epoch, headline metrics (mean over seeds), speed and time left."""

    def __init__(self, headline: tuple[str, ...], total_epochs: int, first_epoch: int, num_seeds: int):
        self._headline = headline
        self._total = total_epochs
        self._first = first_epoch
        self._num_seeds = num_seeds
        self._start = time.monotonic()

    def show(self, row: Row) -> None:
        """Prints the line of a row; time left counts everything: training, evaluation, saving."""
        epoch = row["epoch"]
        parts = [f"epoch {epoch:{len(str(self._total))}}/{self._total}"]
        for name in ("train_loss", *self._headline):
            values = [value for value in row[name] if value is not None]
            parts.append(f"{name} {np.mean(values):.4g}" if values else f"{name} -")
        if lost := sum(row["diverged"]):
            parts.append(f"{lost} of {self._num_seeds} seeds diverged")
        if (done := epoch - self._first) > 0:
            left = (time.monotonic() - self._start) / done * (self._total - epoch)
            parts.append(f"{int(left) // 60}:{int(left) % 60:02d} left")
        print("  ".join(parts), flush=True)
