"""A line for each of many compilations, with the time left."""

import time
from collections.abc import Callable, Sequence

from experiments.core.pace import clock


class Progress:
    """The time left is what was guessed of the rest, corrected by how long those done so far took for their guesses."""

    def __init__(self, guesses: Sequence[float], now: Callable[[], float] = time.monotonic):
        """Takes the seconds that each of them may need."""
        self._guesses, self._now = list(guesses), now
        self._done, self._name, self._start = 0, "", now()

    def begin(self, name: str) -> None:
        """Notes what is compiled next."""
        self._name = name

    def end(self, result: str) -> str:
        """The line of what is done now."""
        self._done += 1
        done, left = sum(self._guesses[: self._done]), sum(self._guesses[self._done :])
        about = clock((self._now() - self._start) / done * left)
        return f"[{self._done}/{len(self._guesses)}] {self._name}: {result} (about {about} left)"
