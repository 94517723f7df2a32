"""The steps since the last row: the metrics of each, the time they took, and the changes in the network.

Changes are found by an experiment's probe (`Experiment.probe`): boolean arrays by name, with a leading axis of
seeds on the host. Those of the row before are kept, in checkpoints too: a run that goes on compares what it would have
compared.
"""

import base64
import math
import time
from typing import Any

import jax
import numpy as np

from experiments.core.training.experiment import Params
from experiments.core.training.setup import Setup

Metrics = Any  # arrays [S, K] by name, possibly nested: seeds, steps
Found = dict[str, np.ndarray]  # bool [S, ...]


class Prober:
    """Applies the probe of an experiment, if it has one."""

    def __init__(self, setup: Setup):
        self._find: Any = None
        if probe := setup.experiment.probe:
            self._find = jax.jit(setup.over_seeds(probe.find, (0, None)), out_shardings=setup.everywhere)
            self._compare = jax.jit(jax.vmap(probe.compare), out_shardings=setup.everywhere)
        self._seed_axis = setup.seed_axis

    def __call__(self, params: Params, progress: float) -> Found:
        """Returns what is found in a network; nothing without a probe."""
        if self._find is None:
            return {}
        found = jax.device_get(self._find(params, np.float32(progress)))
        return found if self._seed_axis else {name: array[None] for name, array in found.items()}

    def compare(self, before: Found, now: Found) -> Any:
        """Metrics [S] of two findings; NaN where there are none before."""
        if not now:
            return {}
        metrics = jax.device_get(self._compare(before or now, now))
        return metrics if before else jax.tree.map(lambda values: np.full_like(values, np.nan), metrics)


class MetricsSinceRow:
    """Reads the metrics of a call only when the next one is under way, so that devices never wait.

    `seconds` counts the time between `start` and `finish`: training, and neither compilation nor
    evaluation nor saving.
    """

    def __init__(self, metrics: Metrics, seconds: float = 0.0, found: Found | None = None):
        """Begins with `metrics` [S, K] and `seconds` of a part that a checkpoint has kept; else K = 0.

        `found` is what the experiment's probe found at the last row.
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
        """The metrics of all seeds and steps [S, K]."""
        return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *self._metrics)

    def means(self) -> Metrics:
        """Means over the steps [S]; NaN where there are none."""
        return jax.tree.map(
            lambda values: values.mean(axis=1) if values.size else np.full(len(values), np.nan), self.metrics
        )

    def to_json(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps; as decimals, float32 come back unchanged. Findings: eight values a byte."""
        found = {
            name: {"shape": array.shape, "bits": base64.b64encode(np.packbits(array).tobytes()).decode()}
            for name, array in self.found.items()
        }
        return {"metrics": jax.tree.map(np.ndarray.tolist, self.metrics), "seconds": self.seconds, "found": found}

    @staticmethod
    def from_json(saved: dict[str, Any]) -> "MetricsSinceRow":
        """Returns what `to_json` was made of, less the times of its steps."""
        metrics = jax.tree.map(
            lambda values: np.asarray(values, np.float32), saved["metrics"], is_leaf=lambda node: isinstance(node, list)
        )
        found = {}
        for name, entry in saved["found"].items():
            packed = np.frombuffer(base64.b64decode(entry["bits"]), np.uint8)
            bits = np.unpackbits(packed, count=math.prod(entry["shape"]))
            found[name] = bits.astype(bool).reshape(entry["shape"])
        return MetricsSinceRow(metrics, saved["seconds"], found)
