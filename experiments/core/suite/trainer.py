"""Trains runs of a suite in this process, one after the other, on data that are decoded once."""

import contextlib
import dataclasses
import io
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import jax
import ml_collections

from experiments.core.errors import UsageError
from experiments.core.input.dataset import Data
from experiments.core.record.environment import Launch
from experiments.core.record.workdir import Workdir
from experiments.core.suite.plan import Fields, Suite, SuiteRun
from experiments.core.training import train


class Stopped(BaseException):
    """SIGTERM or SIGINT; not an Exception, so that nothing on the way takes it for a failed run."""


class DataError(UsageError):
    """The data cannot be obtained, so nothing can run."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a run.

    Attributes:
      seconds: that it took.
      loading: those among them in which the data were read, which may be decoded for all runs.
      error: why it failed, in one line; empty if it did not.
      no_data: whether it failed for want of data, of which its process had found none before.
    """

    seconds: float = 0.0
    loading: float = 0.0
    error: str = ""
    no_data: bool = False


class Trainer:
    """Trains runs of a suite, of which it is known that they can begin."""

    def __init__(self, suite: Suite, out: Path, command: Sequence[str]):
        self._suite, self._out, self._command = suite, out, list(command)
        self._recipe = dataclasses.replace(suite.recipe, load=self._load)
        self._loading = 0.0
        self._data_found = False

    def attempt(self, run: SuiteRun, setting: Fields) -> Outcome:
        """Trains it to its end, and prints now and then how far it is; one that fails must not cost the others.

        Raises:
          Stopped: at SIGTERM or SIGINT; what was trained is saved, all of it if the run was about to end.
        """
        try:
            return self._train(run, setting)
        except Exception as error:
            return Outcome(error=in_a_line(error), no_data=isinstance(error, DataError))

    def _train(self, run: SuiteRun, setting: Fields) -> Outcome:
        config, workdir = self._suite.config(run, self._out, setting), Workdir(self._out / run.name)
        overrides = {name: str(value) for name, value in (dict(run.base) | dict(setting)).items()}
        start, self._loading = time.monotonic(), 0.0
        try:
            with contextlib.redirect_stdout(Sieve(run.name)):
                asked_to_stop = train.start(self._recipe, config, workdir, Launch(self._command, overrides))
        finally:
            jax.clear_caches()  # no two runs share a compiled function, and dozens of them fill the memory
        if asked_to_stop or not workdir.is_done():
            raise Stopped
        return Outcome(time.monotonic() - start, self._loading)

    def _load(self, config: ml_collections.ConfigDict) -> Data:
        """The data of a run. Where the first run finds none, each of the others would fail for the same reason."""
        start = time.monotonic()
        try:
            data = self._suite.recipe.load(config)
        except UsageError as error:
            if self._data_found:
                raise
            raise DataError(str(error)) from error
        self._data_found, self._loading = True, time.monotonic() - start
        return data


class Sieve(io.TextIOBase):
    """Passes on a line of what a run prints now and then: how far it is, and the time left of a long one."""

    def __init__(self, name: str, seconds: float = 20.0):
        self._name, self._seconds, self._out = name, seconds, sys.stdout
        self._last, self._line = time.monotonic(), ""

    def write(self, text: str) -> int:
        """Takes text; of whole lines the last one is passed on, if the last such time is long enough ago."""
        *lines, self._line = (self._line + text).split("\n")
        if lines and lines[-1] and time.monotonic() - self._last >= self._seconds:
            print(f"    {self._name}: {lines[-1]}", file=self._out, flush=True)
            self._last = time.monotonic()
        return len(text)


def in_a_line(error: Exception) -> str:
    """Returns the reason why a run failed, in one line."""
    if isinstance(error, UsageError):
        return str(error)
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Turns signals into `Stopped` wherever the trainer does not handle them itself.

    While a run trains, the trainer notes the signal, saves and returns. Anywhere else nothing is
    under way that could be left half done, since files are written whole.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:  # which comes twice when a terminal is closed: see `training.interrupt`
            signal.signal(number, signal.SIG_IGN)
        raise Stopped

    # What is ignored, as SIGHUP by nohup, stays so.
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    heeded = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
