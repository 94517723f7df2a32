"""What is known of the steps since the last row: the metrics of each, and the time they took."""

import time
from typing import Any

import jax
import numpy as np

from experiments.core.training import probe
from experiments.core.training.probe import Found

Metrics = Any  # arrays [S, K] by name, possibly nested: seeds, steps


class Stretch:
    """Reads the metrics of a call only when the next one is under way, so that devices never wait.

    `seconds` counts the time between `start` and `finish`: training, and neither compilation nor
    evaluation nor saving.
    """

    def __init__(self, metrics: Metrics, seconds: float = 0.0, found: Found | None = None):
        """Of a stretch that a checkpoint cut in two, `metrics` [S, K] and `seconds` of the first part; else K = 0.

        `found` is what the experiment's probe found when it began.
        """
        self._metrics = [metrics]
        self.seconds = seconds
        self.found = found or {}
        self.step_seconds: list[float] = []
        self._unread: Metrics = None
        self._last = 0.0

    def start(self) -> None:
        """Starts the clock."""
        self._last = time.perf_counter()

    def dispatched(self, metrics: Metrics) -> None:
        """Notes a call that has been dispatched (its metrics [S, K] or [K]), and waits for the one before it."""
        before, self._unread = self._unread, metrics
        if before is not None:
            self._read(before)

    def finish(self) -> None:
        """Waits for the last call."""
        if self._unread is not None:
            self._read(self._unread)
            self._unread = None

    def _read(self, metrics: Metrics) -> None:
        metrics = jax.tree.map(np.atleast_2d, jax.device_get(metrics))
        now = time.perf_counter()
        self._metrics.append(metrics)
        self.seconds += now - self._last
        self.step_seconds.append((now - self._last) / jax.tree.leaves(metrics)[0].shape[1])
        self._last = now

    @property
    def metrics(self) -> Metrics:
        """Of all seeds and steps [S, K]."""
        return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *self._metrics)

    def means(self) -> Metrics:
        """Over the steps [S]; NaN where there are none."""
        return jax.tree.map(
            lambda values: values.mean(axis=1) if values.size else np.full(len(values), np.nan), self.metrics
        )

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps of a finished stretch; as decimals, float32 come back unchanged."""
        saved = {"metrics": jax.tree.map(np.ndarray.tolist, self.metrics), "seconds": self.seconds}
        return saved | ({"found": probe.to_json(self.found)} if self.found else {})

    @staticmethod
    def from_json(saved: dict[str, Any]) -> "Stretch":
        """The stretch that `to_json` was made of, less the times of its steps."""
        metrics = jax.tree.map(
            lambda values: np.asarray(values, np.float32), saved["metrics"], is_leaf=lambda node: isinstance(node, list)
        )
        return Stretch(metrics, saved["seconds"], probe.from_json(saved.get("found", {})))
