"""Interleaved timing: contestants share the machine's good and bad moments, and one that fails costs itself alone."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")

_QUEUED = 0.005  # seconds of calls that are queued together
_BURST = 4
_FAST = 0.05
_SETTLE = 0.01  # seconds after a turn, until the threads of others' packages sleep


class Summary(NamedTuple):
    """Median and quartiles of the time of one call, in milliseconds, over ``repetitions`` calls, or queues of them."""

    median_ms: float
    lower_quartile_ms: float
    upper_quartile_ms: float
    repetitions: int


class Budget(NamedTuple):
    """Seconds of all timed calls together, and least and most number of calls of each function."""

    seconds: float
    fewest: int
    most: int


@dataclasses.dataclass(frozen=True)
class Call:
    """A call that others may be queued behind before anybody waits, where there is a queue."""

    begin: Callable[[], Any]  # returns its result, maybe before that is there
    wait: Callable[[Any], Any] = jax.block_until_ready  # takes the result, and returns it when it is there

    def __call__(self) -> Any:
        """Calls, and waits."""
        return self.wait(self.begin())

    def queue(self, count: int) -> None:
        """Begins ``count`` calls, one after the other, and waits until the last is done."""
        result = None
        for _ in range(count):
            result = self.begin()
        self.wait(result)


Calls = dict[str, Call]


class Contest:
    """Calls contestants, and keeps the reasons of those that fail, which are not called again."""

    def __init__(self, lost: Mapping[str, str] | None = None, tell: Callable[[str], None] = lambda name: None):
        """Starts without those that were ``lost`` before; ``tell`` takes the name of each that is tried, then ""."""
        self.failed = dict(lost or {})  # reasons in a line each, by name
        self._tell = tell

    def attempt(self, name: str, function: Callable[[], T]) -> T | None:
        """Returns the function's result, or None if the contestant failed, now or before.

        Raises:
          Exception: its error, if that has also ended the device, as an access outside its memory does.
        """
        if name in self.failed:
            return None
        self._tell(name)
        result = None
        try:
            result = function()
        except Exception as error:  # whatever a package raises, the others go on
            if not _device_answers():
                raise
            self.failed[name] = why(error)
        self._tell("")
        return result

    def compiled(self, functions: Mapping[str, Callable[..., Any]], *arguments: Any) -> Calls:
        """Compiles functions of the same arguments and calls each once; returns the calls, without those that fail."""
        calls: Calls = {}
        for name, function in functions.items():

            def prepare() -> Call:
                call = Call(functools.partial(jax.jit(function).lower(*arguments).compile(), *arguments))  # noqa: B023
                call()
                return call

            if call := self.attempt(name, prepare):
                calls[name] = call
        return calls

    def time(self, calls: Mapping[str, Callable[[], Any]], budget: Budget) -> dict[str, Summary]:
        """Times functions that have been called before, in rounds; returns summaries of those that do not fail.

        A slow function gets fewer turns than a fast one, spread evenly over all rounds. The order within a round is
        shuffled. A function that takes under 50 ms is called five times a turn, and the first call, which finds the
        caches full of somebody else's data, does not count.

        Accelerators have queues: there a ``Call`` is timed by queues of about 5 ms, so that to begin one, which may
        take longer than its work, overlaps with the work of those before.
        """
        rng, share = np.random.default_rng(0), budget.seconds / max(1, len(calls))
        plans = {}
        for name, call in calls.items():
            if plan := self.attempt(name, functools.partial(_plan, call, share, budget)):
                plans[name] = plan
        times: dict[str, list[float]] = {name: [] for name in plans}
        names, rounds = list(plans), max((turns for _, turns in plans.values()), default=0)
        for number in range(rounds):
            for name in (names[index] for index in rng.permutation(len(names))):
                turn, turns = plans[name]
                if (number + 1) * turns // rounds > number * turns // rounds:
                    times[name] += self.attempt(name, turn) or []
        return {name: _summary(seconds) for name, seconds in times.items() if name not in self.failed}


def _plan(call: Callable[[], Any], seconds: float, budget: Budget) -> tuple[Callable[[], list[float]], int]:
    """Returns a function that has a turn and gives the times of its calls, and how many turns fit into the seconds."""
    clock, estimate = _clock_of(call)
    burst, ignored = (_BURST, 1) if estimate < _FAST else (1, 0)

    def turn() -> list[float]:
        times = [clock() for _ in range(burst + ignored)]
        time.sleep(_SETTLE)
        return times[ignored:]

    cost = estimate * (burst + ignored) + _SETTLE
    return turn, int(np.clip(seconds / cost, -(-budget.fewest // burst), -(-budget.most // burst)))


def _clock_of(call: Callable[[], Any]) -> tuple[Callable[[], float], float]:
    """Returns a function that gives the seconds of a call, and an estimate of them."""
    seconds = _seconds(call)
    if not isinstance(call, Call) or jax.default_backend() == "cpu":
        return functools.partial(_seconds, call), seconds
    if min(_seconds(call) for _ in range(3)) >= _QUEUED:  # one bad moment must not tell
        return functools.partial(_seconds, call), seconds
    call.queue(2)
    count = max(1, round(_QUEUED / (_seconds(functools.partial(call.queue, 4)) / 4)))
    queued = functools.partial(call.queue, count)
    return lambda: _seconds(queued) / count, _seconds(queued)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _summary(seconds: Sequence[float]) -> Summary:
    lower, median, upper = np.quantile(np.asarray(seconds) * 1e3, (0.25, 0.5, 0.75)).tolist()
    return Summary(median, lower, upper, len(seconds))


def why(error: BaseException) -> str:
    """Returns the kind and the first line of an error."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _device_answers() -> bool:
    try:
        return float(jnp.ones(2).sum()) == 2.0
    except jax.errors.JaxRuntimeError:
        return False
