"""Trains the runs of a suite one after the other, in one process, from wherever an earlier one stopped."""

import contextlib
import dataclasses
import io
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TextIO

import jax
import ml_collections

from experiments.core.errors import UsageError
from experiments.core.input.dataset import Data
from experiments.core.record.environment import Launch
from experiments.core.record.files import read_object, write_json
from experiments.core.record.workdir import Workdir
from experiments.core.suite.choice import choose
from experiments.core.suite.plan import Fields, Suite, SuiteRun
from experiments.core.training import train

CHOICES = "choices.json"


class Stopped(BaseException):
    """SIGTERM or SIGINT; not an Exception, so that nothing on the way takes it for a failed run."""


class DataError(UsageError):
    """The data cannot be obtained, so nothing can run."""


def train_all(
    suite: Suite, out: Path, runs: Sequence[SuiteRun], selected: Sequence[SuiteRun], command: Sequence[str]
) -> list[str]:
    """Trains those of `selected` (a part of `runs`) that are not done, and returns the names of those that failed.

    Raises:
      Stopped: at SIGTERM or SIGINT, once the run under way is saved.
      DataError: before any run, if the data cannot be obtained.
    """
    with _stoppable():
        return _Runner(suite, out, runs, selected, command).go()


class _Runner:
    def __init__(
        self, suite: Suite, out: Path, runs: Sequence[SuiteRun], selected: Sequence[SuiteRun], command: Sequence[str]
    ):
        self.suite, self.out, self.runs, self.selected, self.command = suite, out, runs, selected, list(command)
        self.recipe = dataclasses.replace(suite.recipe, load=self._load)
        self.failed: list[str] = []
        self.cost_done = self.seconds = 0.0  # of the runs trained here
        self.loading = 0.0  # seconds of the run under way, which may decode the data of all
        self.data_found = False

    def go(self) -> list[str]:
        width = len(str(len(self.selected)))
        for number, run in enumerate(self.selected, start=1):
            print(f"[{number:{width}}/{len(self.selected)}] {run.name}", end="", flush=True)
            try:
                trained = self._train(run)
            except DataError:
                print()
                raise
            except UsageError as error:
                self._fail(run, str(error))
            except Exception as error:
                # One run that fails must not cost the night's others.
                self._fail(run, f"{type(error).__name__}: {_first_line(error)}")
            else:
                result = _result(self.out / run.name, self.suite.shown)
                took = f"  {trained:.0f} s" if trained else "  was done"
                print(f"  {result}{took}{self._time_left(number) if trained else ''}", flush=True)
        return self.failed

    def _train(self, run: SuiteRun) -> float:
        """The seconds it took; 0 if the run was there already."""
        setting = self._setting(run)
        config = self.suite.config(run, self.out, setting)
        workdir = Workdir(self.out / run.name)
        workdir.check(config)
        if workdir.is_done():
            return 0.0
        if run.weights_of is not None and not Path(config.pretrained).exists():
            raise UsageError(f"its weights are not there yet: {run.weights_of} must run first")
        if run.best_of is not None:  # the fields of others have been checked ahead of all runs
            train.check_fields(self.suite.recipe, config)
        start, self.loading = time.monotonic(), 0.0
        overrides = {name: str(value) for name, value in (dict(run.base) | dict(setting)).items()}
        try:
            with Sieve(sys.stdout) as sieve, contextlib.redirect_stdout(sieve):
                train.start(self.recipe, config, workdir, Launch(self.command, overrides))
        finally:
            jax.clear_caches()  # no two runs share a compiled function, and dozens of them fill the memory
        if not workdir.is_done():
            raise Stopped
        seconds = time.monotonic() - start
        self.seconds += seconds - self.loading
        self.cost_done += self.suite.cost(run)
        return seconds

    def _load(self, config: ml_collections.ConfigDict) -> Data:
        """The data of a run. Where the first run finds none, each of the others would fail for the same reason."""
        start = time.monotonic()
        try:
            data = self.suite.recipe.load(config)
        except UsageError as error:
            if self.data_found:
                raise
            raise DataError(str(error)) from error
        self.data_found, self.loading = True, time.monotonic() - start
        return data

    def _setting(self, run: SuiteRun) -> Fields:
        """The fields to put over the base: the winner's, if the run takes one, then the run's own."""
        if run.best_of is None:
            return run.setting
        choice = choose(self.suite, self.out, self.runs)[run.best_of]
        if choice["setting"] is None or set(choice["missing"]) - set(self.failed):
            raise UsageError(f"its setting is not chosen yet: {', '.join(choice['missing'])} must run first")
        return choice["setting"] | dict(run.setting)

    def _fail(self, run: SuiteRun, reason: str) -> None:
        self.failed.append(run.name)
        print(f"  FAILED: {reason}", flush=True)

    def _time_left(self, number: int) -> str:
        left = [run for run in self.selected[number:] if not Workdir(self.out / run.name).summary.exists()]
        seconds = self.seconds / self.cost_done * sum(map(self.suite.cost, left))
        return f"  (time left ~ {duration(seconds)})" if left else ""


class Sieve(io.TextIOBase):
    """Passes on a line of what a run prints now and then: how far it is, and the time left of a long one."""

    def __init__(self, out: TextIO, seconds: float = 20.0):
        self._out, self._seconds = out, seconds
        self._last, self._line = time.monotonic(), ""
        self._any = False

    def write(self, text: str) -> int:
        """Takes text; of whole lines the last one is passed on, if the last such time is long enough ago."""
        *lines, self._line = (self._line + text).split("\n")
        if lines and lines[-1] and time.monotonic() - self._last >= self._seconds:
            self._out.write(f"\n    {lines[-1]}")
            self._out.flush()
            self._last, self._any = time.monotonic(), True
        return len(text)

    def close(self) -> None:
        """Ends the line, so that the run's result stands alone in the next; once."""
        if self._any and not self.closed:
            self._out.write("\n")
        super().close()


def write_choices(suite: Suite, out: Path, runs: Sequence[SuiteRun]) -> None:
    """Writes what has been measured and chosen on validation, if the suite chooses at all; choices of others stay.

    Raises:
      DamagedError: the file that is there holds something else.
    """
    if choices := choose(suite, out, runs):
        path = out / CHOICES
        others = read_object(path, "remove it, and the suite writes it again") if path.exists() else {}
        write_json(path, others | choices)


def duration(seconds: float) -> str:
    """`45 s` or `12 min`."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _result(path: Path, shown: Sequence[str]) -> str:
    summary = Workdir(path).read_summary()
    final = summary["final"]
    parts = []
    for name in shown:
        value = final
        for part in name.split("/"):
            value = value.get(part, {})
        if value:
            parts.append(f"{name} " + ("-" if value["mean"] is None else f"{value['mean']:.2f} %"))
    if summary["diverged"]:
        parts.append(f"{summary['diverged']} of {len(summary['seeds'])} seeds diverged")
    return ", ".join(parts)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no reason given").splitlines()[0]


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Turns signals into `Stopped` wherever the trainer does not handle them itself.

    While a run trains, the trainer notes the signal, saves and returns. Anywhere else nothing is
    under way that could be left half done, since files are written whole.
    """

    def stop(number: int, frame: FrameType | None) -> None:
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
