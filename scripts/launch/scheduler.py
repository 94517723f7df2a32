"""Runs the points of a sweep, so many at a time, again where that may help, and says how far they are."""

import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from experiments.core.errors import UsageError
from experiments.core.files import is_remote
from scripts.launch import state
from scripts.launch.check import check
from scripts.launch.process import Console, Failed, Stopped
from scripts.launch.training import Training

LONGEST_PAUSE = 1800.0  # seconds


class Platform(Protocol):
    """Machines that train.

    Attributes:
      retries: attempts in a row without progress that a run may have besides the first, unless the user says otherwise.
      leaves_running: whether runs go on when the launcher is stopped.
      num_devices: that JAX will see in a run, for configs to be checked before; None if that is not known, or if a
        run would say as soon.
    """

    retries: int
    leaves_running: bool
    num_devices: int | None

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
          UsageError: no run can be started like this.
          Stopped: the launcher is to stop.
        """

    def finish(self) -> None:
        """Ends what `prepare` and `train` have begun, where the user wants that."""


class Scheduler:
    """One invocation of the launcher."""

    def __init__(
        self,
        platform: Platform,
        trainings: Sequence[Training],
        console: Console,
        retries: int,
        pause: float,
        *,
        checked: bool,
    ):
        self._platform, self._trainings, self._console = platform, trainings, console
        self._checked = checked
        self._retries, self._pause = retries, pause
        self._status = 0
        self._mistake: UsageError | None = None
        self._left: queue.SimpleQueue[Training] = queue.SimpleQueue()

    def go(self, jobs: int) -> int:
        """Trains what is left, `jobs` runs at a time; returns the worst exit status of those that failed.

        Raises:
          UsageError: the user has to mend something first.
          Stopped: the launcher was asked to stop; what runs has been stopped, or goes on if the platform leaves it.
        """
        left = []
        for training in self._trainings:
            if self._console.dry_run or state.read(training).word != state.DONE:
                left.append(training)
            else:
                self._console.say(f"{label(training)}: was done")
        if self._checked and self._platform.num_devices:
            check(left, self._platform.num_devices, self._console)
        for training in left:
            self._left.put(training)
        self._platform.prepare()
        if self._console.dry_run:  # one after the other, so that what is printed can be read
            for slot in range(self._left.qsize()):
                training = self._left.get()
                self._platform.train(training, slot % jobs, logs_of(training))
            self._platform.finish()
            return 0
        threads = [threading.Thread(target=self._work, args=(slot,)) for slot in range(min(jobs, self._left.qsize()))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._mistake:
            raise self._mistake
        if self._console.stopping.is_set():
            raise Stopped
        self._platform.finish()
        return self._status

    def _work(self, slot: int) -> None:
        while True:
            try:
                training = self._left.get_nowait()
            except queue.Empty:
                return
            try:
                self._train(training, slot)
            except Stopped:
                return
            except UsageError as error:  # the same for all
                state.record(training, state.FAILED, reason=str(error))
                self._mistake = error
                self._console.stop()
                return

    def _train(self, training: Training, slot: int) -> None:
        console, failures, rows = self._console, 0, state.num_rows(training)
        while True:
            state.record(training, state.RUNNING)
            console.say(f"{label(training)}: {'resumes' if rows else 'starts'}, in {training.workdir}")
            try:
                self._platform.train(training, slot, logs_of(training))
                if (now := state.read(training)).word != state.DONE:
                    raise Failed(f"it ended before it was done ({now.reached or 'at the start'})")
                state.record(training, state.DONE)
                console.say(f"{label(training)}: done")
                return
            except Stopped:
                if not self._platform.leaves_running:
                    state.record(training, state.TO_DO)
                raise
            except Failed as error:
                reached = state.num_rows(training)
                failures, rows = (1 if reached > rows else failures + 1), reached
                if not error.again or failures > self._retries:
                    state.record(training, state.FAILED, reason=str(error))
                    console.say(f"{label(training)}: FAILED: {error}")
                    self._status = max(self._status, error.status)
                    return
                pause = min(self._pause * 2 ** (failures - 1), LONGEST_PAUSE)
                console.say(f"{label(training)}: {error}; attempt {failures} of {self._retries} more in {pause:.0f} s")
                state.record(training, state.TO_DO, reason=str(error))
                console.wait(pause)


def label(training: Training) -> str:
    """What a run is called on the terminal."""
    return training.name or training.experiment


def logs_of(training: Training) -> Path:
    """Where what a run says is kept: in its workdir, or below runs/ if that is in a bucket."""
    if is_remote(training.workdir):
        return Path("runs") / "logs" / f"{training.workdir.rstrip('/').rpartition('/')[2]}-{training.digest}"
    return Path(training.workdir) / "logs"
