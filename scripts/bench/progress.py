"""One line per stage, with the time left."""

import time
from collections.abc import Callable, Sequence

from experiments.core.pace import clock


class Progress:
    """Announces stages whose lengths were guessed beforehand; the guesses are corrected by how the first ones went."""

    def __init__(self, guesses: Sequence[float], say: Callable[[str], None]):
        self._guesses = list(guesses)
        self._say = say
        self._stage = 0
        self._start = time.monotonic()

    def next(self, name: str) -> None:
        """Begins the next stage."""
        done, left = sum(self._guesses[: self._stage]), sum(self._guesses[self._stage :])
        pace = (time.monotonic() - self._start) / done if done else 1.0
        self._stage += 1
        self._say(f"[{self._stage}/{len(self._guesses)}] {name}, about {clock(pace * left)} left")
