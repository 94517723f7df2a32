"""Interleaved timing: whoever is compared shares the machine's good and bad moments."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from experiments.core.pace import pace
from scripts.bench.failure import caught

Key = TypeVar("Key", bound=Hashable)

_QUEUED = 0.005  # seconds of calls that are queued together
_BURST = 4
_FAST = 0.05
_PATIENCE = 10.0  # seconds between two lines of progress


class Summary(NamedTuple):
    """Median and quartiles of the time of one call, in milliseconds, over ``repetitions`` calls, or queues of them."""

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


@dataclasses.dataclass(frozen=True)
class Call:
    """A call that others may be queued behind before anybody waits, where there is a queue.

    Attributes:
      begin: begins it, and returns what comes of it, maybe before that is there.
      wait: takes that, and returns it when it is there.
    """

    begin: Callable[[], Any]
    wait: Callable[[Any], Any]

    def __call__(self) -> Any:
        """Calls, and waits."""
        return self.wait(self.begin())

    def queue(self, count: int) -> None:
        """So many calls, one after the other, until the last is done."""
        result = None
        for _ in range(count):
            result = self.begin()
        self.wait(result)


def together(queue: Callable[[int], None]) -> int:
    """How many calls of a queue take about 5 ms."""
    queue(2)
    start = time.perf_counter()
    queue(4)
    return max(1, round(_QUEUED / ((time.perf_counter() - start) / 4)))


def interleave(
    calls: Mapping[Key, Callable[[], Any]],
    budget: Budget,
    settle: Mapping[Key, float] | None = None,
    say: Callable[[str], None] = lambda line: print(line, flush=True),
    failed: MutableMapping[Key, str] | None = None,
) -> dict[Key, Summary]:
    """Times functions that have been called before (and are compiled), in rounds.

    A slow function gets fewer turns than a fast one, spread evenly over all rounds. The order within a round is
    shuffled. A function that takes under 50 ms is called five times a turn, and the first call, which finds the
    caches full of somebody else's data, does not count.

    Accelerators have queues: there a ``Call`` is timed by queues of about 5 ms, so that to begin one, which may take
    longer than its work, overlaps with the work of those before.

    Args:
      calls: functions that return when their work is done.
      budget: how long to go on.
      settle: seconds to wait after a turn of a function.
      say: takes a line of progress now and then, between two rounds.
      failed: gets the reason why a function raised, which then has no more turns, and no summary. Without it the error
        ends all.
    """
    rng = np.random.default_rng(0)
    settle = settle or {}
    counts: dict[Key, int] = {}
    timed: dict[Key, Callable[[], Any]] = {}
    estimates: dict[Key, float] = {}
    for key, call in calls.items():
        with caught(failed, key):
            counts[key], timed[key], estimates[key] = 1, call, _clock(call)
            if isinstance(call, Call):  # one bad moment must not tell whether it is queued
                estimates[key] = min(estimates[key], _clock(call), _clock(call))
            if isinstance(call, Call) and estimates[key] < _QUEUED and jax.default_backend() != "cpu":
                counts[key] = together(call.queue)
                timed[key] = functools.partial(call.queue, counts[key])
                estimates[key] = _clock(timed[key])
    share = budget.seconds / max(1, len(calls))
    estimates = {key: estimate for key, estimate in estimates.items() if key not in (failed or ())}
    bursts = {key: _BURST if estimate < _FAST else 1 for key, estimate in estimates.items()}
    turns = {}
    for key, estimate in estimates.items():
        burst = bursts[key]
        cost = estimate * (burst + 1 if burst > 1 else 1) + settle.get(key, 0.0)
        turns[key] = int(np.clip(share / cost, -(-budget.fewest // burst), -(-budget.most // burst)))
    rounds = max(turns.values(), default=0)
    keys = list(turns)
    times: dict[Key, list[float]] = {key: [] for key in keys}
    start = last = time.monotonic()
    for number in range(rounds):
        if number and time.monotonic() - last > _PATIENCE:
            last = time.monotonic()
            say(f"{number} of {rounds} rounds, {pace(number, rounds, last - start)}")
        for index in rng.permutation(len(keys)):
            key = keys[index]
            if key in (failed or ()) or (number + 1) * turns[key] // rounds == number * turns[key] // rounds:
                continue
            with caught(failed, key):
                if bursts[key] > 1:
                    timed[key]()
                times[key] += [_clock(timed[key]) / counts[key] for _ in range(bursts[key])]
            if settle.get(key):
                time.sleep(settle[key])
    return {key: summarise(seconds) for key, seconds in times.items() if key not in (failed or ())}


def summarise(seconds: list[float]) -> Summary:
    """Median and quartiles of a list of times."""
    lower, median, upper = np.quantile(np.asarray(seconds) * 1e3, (0.25, 0.5, 0.75))
    return Summary(float(median), float(lower), float(upper), len(seconds))


def _clock(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
