"""Runs the points of a sweep, so many at a time, again where that may help, and says how far they are."""

import platform
import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from experiments.core.errors import UsageError
from experiments.core.record.files import is_remote
from scripts.launch import state
from scripts.launch.check import check
from scripts.launch.compile_first import compile_first
from scripts.launch.process import Console, Failed, Stopped, Unusable
from scripts.launch.training import Training

LONGEST_PAUSE = 1800.0  # seconds


class Platform(Protocol):
    """Machines that train.

    Attributes:
      retries: attempts in a row without progress that a run may have besides the first, unless the user says otherwise.
      leaves_running: whether runs that were submitted go on when the launcher is stopped; `train` says so of each.
      num_devices: that JAX will see in a run, for configs to be checked before; None if that is not known, 0 if a run
        would say as soon.
      num_processes: that share them.
    """

    retries: int
    leaves_running: bool
    num_devices: int | None
    num_processes: int

    def prepare(self) -> None:
        """Does once what all runs need."""

    def train(self, training: Training, slot: int, logs: Path) -> None:
        """Runs the training command to its end.

        Args:
          training: the run.
          slot: from 0 on; no two runs are in the same slot at a time.
          logs: a local directory for what it says.

        Raises:
          Failed: it has failed, or could not be started.
          Unusable: nor could another in this slot.
          UsageError: no run can be started like this, in any slot.
          Stopped: the launcher is to stop; whether the run goes on.
        """

    def release(self, slot: int, *, keep: bool) -> bool:
        """Gives the machines of a slot back where the user wants that, and names those that stay; raises nothing.

        Args:
          slot: in which no run is left to be trained, whether or not there was one.
          keep: the user has interrupted the runs, to go on with them later.

        Returns:
          Whether nothing stays that the user wanted back.
        """


class Scheduler:
    """One invocation of the launcher."""

    def __init__(
        self,
        machines: Platform,
        trainings: Sequence[Training],
        console: Console,
        retries: int,
        pause: float,
        *,
        checked: bool,
        take_over: bool,
        compile_for: str | None = None,
    ):
        self._platform, self._trainings, self._console = machines, trainings, console
        self._checked, self._take_over, self._compile_for = checked, take_over, compile_for
        self._retries, self._pause = retries, pause
        self._status = 0
        self.going_on: list[str] = []  # the runs that were submitted when the launcher was stopped
        self._mistake: UsageError | None = None  # the first
        self._left: queue.SimpleQueue[Training] = queue.SimpleQueue()

    def go(self, jobs: int) -> int:
        """Trains what is left, `jobs` runs at a time; returns the worst exit status of those that failed.

        Raises:
          UsageError: the user has to correct something first.
          Stopped: the launcher was asked to stop; what runs has been stopped, or goes on if the platform leaves it.
        """
        left = []
        for training in self._trainings:
            if self._console.dry_run or state.read(training).word != state.DONE:
                left.append(training)
            else:
                self._console.say(f"{label(training)}: was done")
        if not self._console.dry_run and not self._take_over:
            for training in left:
                self._require_free(training)
        if self._checked and self._platform.num_devices:
            check(left, self._platform.num_devices, self._platform.num_processes, self._console)
        elif self._checked and self._platform.num_devices is None and not self._console.dry_run:
            self._console.say("not checked before it is run: how many devices there will be is not known here")
        if self._compile_for:
            compile_first(left, self._compile_for, self._console)
        for training in left:
            self._left.put(training)
        self._platform.prepare()
        if self._console.dry_run:  # one after the other, so that what is printed can be read
            for slot in range(self._left.qsize()):
                training = self._left.get()
                self._platform.train(training, slot % jobs, logs_of(training))
            for slot in range(jobs):
                self._platform.release(slot, keep=False)
            return 0
        # Also for slots without a run: an earlier launcher may have died before it gave their machines back.
        threads = [threading.Thread(target=self._work, args=(slot,)) for slot in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._mistake:
            raise self._mistake
        if self._console.stopping.is_set():
            raise Stopped
        return self._status

    def _require_free(self, training: Training) -> None:
        """Refuses a run that another launcher has; what one elsewhere has submitted may be followed from here, too."""
        other = state.launcher_of(training)
        here = other is not None and other["host"] == platform.node()
        if other and (here or not self._platform.leaves_running):
            seen = "" if here else ", as far as can be told from here"
            raise UsageError(
                f"{training.workdir} is in the hands of another launcher, process {other['pid']} on {other['host']}"
                f"{seen}: if that is not so any more, --take_over goes on with it"
            )

    def _work(self, slot: int) -> None:
        try:
            while True:
                self._train(self._left.get_nowait(), slot)
        except (queue.Empty, Stopped, Unusable):
            pass
        except UsageError as error:  # the same for all
            self._mistake = self._mistake or error
            self._console.stop()
        # A machine that nobody needs any more does not wait for the other slots.
        if not self._platform.release(slot, keep=self._console.stopping.is_set() and not self._mistake):
            self._status = max(self._status, 1)

    def _train(self, training: Training, slot: int) -> None:
        console, failures, rows = self._console, 0, 0
        while True:
            try:
                rows = max(rows, state.num_rows(training))
                self._attempt(training, slot, "resumes" if rows else "starts")
                return
            except Stopped as stopped:
                if stopped.goes_on:
                    self.going_on.append(label(training))
                    self._record(training, state.INTERRUPTED, "its launcher was stopped; what it submitted goes on")
                else:
                    self._record(training, state.TO_DO)
                raise
            except UsageError as error:
                self._record(training, state.FAILED, str(error))
                raise
            except Exception as error:  # of whatever kind, as of a bucket that cannot be reached
                failed = error if isinstance(error, Failed) else Failed(f"{type(error).__name__}: {error}")
                reached = self._num_rows(training, rows)
                failures, rows = (1 if reached > rows else failures + 1), reached
                if not failed.again or failures > self._retries:
                    self._status = max(self._status, failed.status)
                    self._record(training, state.FAILED, str(failed))
                    console.say(f"{label(training)}: FAILED: {failed}")
                    if isinstance(failed, Unusable):
                        raise failed from None
                    return
                pause = min(self._pause * 2 ** (failures - 1), LONGEST_PAUSE)
                console.say(f"{label(training)}: {failed}; attempt {failures} of {self._retries} more in {pause:.0f} s")
                self._pause_for(training, pause, str(failed))

    def _pause_for(self, training: Training, seconds: float, reason: str) -> None:
        """Waits before another attempt, for which the run stays in the hands of this launcher."""
        self._record(training, state.PAUSED, reason)
        try:
            self._console.wait(seconds)
        except Stopped:
            self._record(training, state.TO_DO, reason)
            raise

    def _attempt(self, training: Training, slot: int, verb: str) -> None:
        self._record(training, state.RUNNING)
        self._console.say(f"{label(training)}: {verb}, in {training.workdir}")
        self._platform.train(training, slot, logs_of(training))
        if (now := state.read(training)).word != state.DONE:
            raise Failed(f"it ended before it was done ({now.reached or 'at the start'})")
        self._record(training, state.DONE)
        self._console.say(f"{label(training)}: done")

    def _record(self, training: Training, word: str, reason: str = "") -> None:
        """Records a state for the table; a run does not fail because that cannot be written."""
        try:
            state.record(training, word, reason=reason)
        except Exception as error:
            self._console.say(f"{label(training)}: that it is {word!r} could not be recorded: {error}")

    def _num_rows(self, training: Training, rows: int) -> int:
        """The rows of a run, of which `rows` are known of; no more than these where it cannot be asked."""
        try:
            return state.num_rows(training)
        except Exception as error:
            self._console.say(f"{label(training)}: how far it is could not be read: {error}")
            return rows


def label(training: Training) -> str:
    """What a run is called on the terminal."""
    return training.name or training.experiment


def logs_of(training: Training) -> Path:
    """Where what a run says is kept: in its workdir, or below runs/ if that is in a bucket."""
    if is_remote(training.workdir):
        return Path("runs") / "logs" / f"{training.workdir.rstrip('/').rpartition('/')[2]}-{training.digest}"
    return Path(training.workdir) / "logs"
