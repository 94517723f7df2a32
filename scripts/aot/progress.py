"""A line for each of many compilations, with the time left."""

import time
from collections.abc import Callable

from experiments.core.pace import pace


class Progress:
    """The time left is that of the rest at the mean of those done so far."""

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic):
        self._count, self._clock = count, clock
        self._done, self._name, self._start = 0, "", clock()

    def begin(self, name: str) -> None:
        """Notes what is compiled next."""
        self._name = name

    def end(self, result: str) -> str:
        """The line of what is done now."""
        self._done += 1
        left = pace(self._done, self._count, self._clock() - self._start)
        return f"[{self._done}/{self._count}] {self._name}: {result} ({left})"
