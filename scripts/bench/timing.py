"""Interleaved timing: whoever is compared shares the machine's good and bad moments."""

import dataclasses
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from experiments.core.pace import pace

Key = TypeVar("Key", bound=Hashable)

_BURST = 4
_FAST = 0.05
_PATIENCE = 10.0  # seconds between two lines of progress


class Summary(NamedTuple):
    """Median and quartiles of the time of one call, in milliseconds, over ``repetitions`` calls."""

    median_ms: float
    lower_quartile_ms: float
    upper_quartile_ms: float
    repetitions: int


@dataclasses.dataclass(frozen=True)
class Budget:
    """Seconds of all timed calls together, and least and most number of calls of each function."""

    seconds: float
    fewest: int
    most: int


def interleave(
    calls: Mapping[Key, Callable[[], Any]],
    budget: Budget,
    settle: Mapping[Key, float] | None = None,
    say: Callable[[str], None] = lambda line: print(line, flush=True),
) -> dict[Key, Summary]:
    """Times functions that have been called before (and are compiled), in rounds.

    A slow function gets fewer turns than a fast one, spread evenly over all rounds. The order within a round is
    shuffled. A function that takes under 50 ms is called five times a turn, and the first call, which finds the
    caches full of somebody else's data, does not count.

    Args:
      calls: functions that return when their work is done.
      budget: how long to go on.
      settle: seconds to wait after a turn of a function.
      say: takes a line of progress now and then, between two rounds.
    """
    rng = np.random.default_rng(0)
    settle = settle or {}
    estimates = {key: _clock(call) for key, call in calls.items()}
    share = budget.seconds / max(1, len(calls))
    bursts = {key: _BURST if estimate < _FAST else 1 for key, estimate in estimates.items()}
    turns = {}
    for key, estimate in estimates.items():
        burst = bursts[key]
        cost = estimate * (burst + 1 if burst > 1 else 1) + settle.get(key, 0.0)
        turns[key] = int(np.clip(share / cost, -(-budget.fewest // burst), -(-budget.most // burst)))
    rounds = max(turns.values(), default=0)
    keys = list(calls)
    times: dict[Key, list[float]] = {key: [] for key in keys}
    start = last = time.monotonic()
    for number in range(rounds):
        if number and time.monotonic() - last > _PATIENCE:
            last = time.monotonic()
            say(f"{number} of {rounds} rounds, {pace(number, rounds, last - start)}")
        for index in rng.permutation(len(keys)):
            key = keys[index]
            if (number + 1) * turns[key] // rounds == number * turns[key] // rounds:
                continue
            if bursts[key] > 1:
                calls[key]()
            times[key] += [_clock(calls[key]) for _ in range(bursts[key])]
            if settle.get(key):
                time.sleep(settle[key])
    return {key: summarise(seconds) for key, seconds in times.items()}


def summarise(seconds: list[float]) -> Summary:
    """Median and quartiles of a list of times."""
    lower, median, upper = np.quantile(np.asarray(seconds) * 1e3, (0.25, 0.5, 0.75))
    return Summary(float(median), float(lower), float(upper), len(seconds))


def _clock(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
