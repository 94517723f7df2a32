"""SIGTERM and SIGINT as a question that the training loop asks when it can stop."""

import signal
from types import FrameType
from typing import Any


class Interrupt:
    """While entered, the first SIGTERM or SIGINT is only noted; a second one acts as usual.

    orbax and JAX leave these signals alone (of several processes, `distributed.py` sees to it), so
    without this a preempted run would lose what it did since the last checkpoint.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.received: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupt":
        self._previous = {number: signal.signal(number, self._note) for number in self._SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
