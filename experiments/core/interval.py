"""What is known of the steps since the last row: their losses, and the time they took."""

import time
from typing import Any

import jax
import numpy as np


class Interval:
    """Reads the losses of a call only when the next one is under way, so that devices never wait.

    `seconds` counts the time between `start` and `finish`: training, and neither evaluation nor
    saving. Losses are [S, K] per call.
    """

    def __init__(self, losses: np.ndarray, seconds: float = 0.0):
        """Of an interval that a checkpoint cut in two, `losses` [S, K] and `seconds` of the first part."""
        self._losses = [losses]
        self.seconds = seconds
        self.step_seconds: list[float] = []
        self._unread: jax.Array | None = None
        self._last = 0.0

    def start(self) -> None:
        """Starts the clock."""
        self._last = time.perf_counter()

    def dispatched(self, losses: jax.Array) -> None:
        """Notes a call that has been dispatched, and waits for the one before it."""
        before, self._unread = self._unread, losses
        if before is not None:
            self._read(before)

    def finish(self) -> None:
        """Waits for the last call."""
        if self._unread is not None:
            self._read(self._unread)
            self._unread = None

    def _read(self, losses: jax.Array) -> None:
        values = np.asarray(losses)
        now = time.perf_counter()
        self._losses.append(values.reshape(-1, values.shape[-1]))
        self.seconds += now - self._last
        self.step_seconds.append((now - self._last) / values.shape[-1])
        self._last = now

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps of a finished interval; as decimals, float32 come back unchanged."""
        return {"losses": self.losses.tolist(), "seconds": self.seconds}

    @staticmethod
    def from_json(saved: dict[str, Any]) -> "Interval":
        """The interval that `to_json` was made of, less the times of its steps."""
        return Interval(np.asarray(saved["losses"], np.float32), saved["seconds"])

    @property
    def losses(self) -> np.ndarray:
        """Of all seeds and steps [S, K]."""
        return np.concatenate(self._losses, axis=1)
