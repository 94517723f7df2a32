"""Trains the runs of a sweep, several at a time, and tries again where that may help."""

import argparse
import queue
import threading
from collections.abc import Sequence

from experiments.core.errors import UsageError
from scripts.launch import state
from scripts.launch.process import Console, Failed, Stopped, Unusable
from scripts.launch.training import Training

LONGEST_PAUSE = 1800.0  # seconds


class Platform:
    """Machines that train.

    Attributes:
      retries: attempts in a row without progress that a run may have besides the first, unless the user says otherwise.
      submits: whether runs are jobs that go on when the launcher is stopped, and that the next launcher waits for.
      type: of TPU that a run has, such as `v6e-16`; empty if it has none.
      num_devices: that JAX will see in a run; None if it is told by the type, or not known.
      num_processes: that share the devices.
    """

    retries = 3
    submits = False
    type = ""
    num_devices: int | None = None
    num_processes = 1

    def __init__(self, options: argparse.Namespace, console: Console):
        self._options, self._console = options, console

    def prepare(self) -> None:
        """Does once what all runs need."""

    def train(self, training: Training, slot: int) -> None:
        """Runs the training command to its end, no two at a time in the same slot; what it prints goes to the logs.

        Raises:
          Failed: it has failed, or could not be started.
          Unusable: nor could another in this slot.
          UsageError: no run can be started like this, in any slot.
          Stopped: the launcher is to stop.
        """
        raise NotImplementedError

    def release(self, slot: int, *, keep: bool) -> bool:
        """Gives the machine of a slot without runs back, or names it if it stays; returns False if that fails."""
        return True


class Scheduler:
    """One invocation of the launcher."""

    def __init__(self, machines: Platform, console: Console, options: argparse.Namespace):
        self._platform, self._console, self._options = machines, console, options
        self._retries = machines.retries if options.retries is None else options.retries
        self._status = 0
        self._mistake: UsageError | None = None  # the first
        self._left: queue.SimpleQueue[Training] = queue.SimpleQueue()

    def go(self, trainings: Sequence[Training]) -> int:
        """Trains runs, `--jobs` at a time; returns the worst exit status of those that failed.

        Raises:
          UsageError: the user has to correct something first.
          Stopped: the launcher was asked to stop; runs have saved and ended, or go on if they were submitted.
        """
        jobs = self._options.jobs
        self._platform.prepare()
        if self._console.dry_run:  # one after the other, so that what is printed can be read
            for number, training in enumerate(trainings):
                self._platform.train(training, number % jobs)
            for slot in range(jobs):
                self._platform.release(slot, keep=False)
            return 0
        for training in trainings:
            self._left.put(training)
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

    def _work(self, slot: int) -> None:
        try:
            while True:
                self._train(self._left.get_nowait(), slot)
        except (queue.Empty, Stopped, Unusable):
            pass
        except UsageError as error:  # the same for all
            self._mistake = self._mistake or error
            self._console.stopping.set()
        # A machine that nobody needs any more does not wait for the other slots.
        if not self._platform.release(slot, keep=self._console.stopping.is_set() and not self._mistake):
            self._status = max(self._status, 1)

    def _train(self, training: Training, slot: int) -> None:
        failures, rows, reason, pause = 0, state.num_rows(training), "", 0.0
        while True:
            if self._console.stopping.wait(pause):
                self._record(training, state.TO_DO, reason)
                raise Stopped
            try:
                self._attempt(training, slot, reason, "resumes" if rows else "starts")
                return
            except Stopped:
                if not self._platform.submits:
                    self._record(training, state.TO_DO, reason)
                raise
            except UsageError as error:
                self._record(training, state.FAILED, str(error))
                raise
            except Exception as error:  # of whatever kind, for example of a bucket that cannot be reached
                failed = error if isinstance(error, Failed) else Failed(f"{type(error).__name__}: {error}")
            reason, reached = str(failed), state.num_rows(training)
            failures, rows = (1 if reached > rows else failures + 1), max(reached, rows)
            if not failed.again or failures > self._retries:
                self._status = max(self._status, failed.status)
                self._record(training, state.FAILED, reason)
                self._console.say(f"{training.label}: FAILED: {reason}")
                if isinstance(failed, Unusable):
                    raise failed
                return
            pause = min(self._options.pause_seconds * 2 ** (failures - 1), LONGEST_PAUSE)
            what_next = f"attempt {failures} of {self._retries} more in {pause:.0f} s"
            self._console.say(f"{training.label}: {reason}; {what_next}")
            self._record(training, state.RUNNING, reason)

    def _attempt(self, training: Training, slot: int, reason: str, verb: str) -> None:
        self._record(training, state.RUNNING, reason, submitted=self._platform.submits)
        self._console.say(f"{training.label}: {verb}, in {training.workdir}; logs: {training.logs}")
        self._platform.train(training, slot)
        if (now := state.read(training)).word != state.DONE:
            raise Failed(f"it ended before it was done ({now.reached or 'at the start'}); logs: {training.logs}")
        self._record(training, state.DONE, "")
        self._console.say(f"{training.label}: done")

    def _record(self, training: Training, word: str, reason: str, *, submitted: bool = False) -> None:
        """Records a state for the table; a run does not fail because it cannot be written."""
        try:
            state.record(training, word, reason, submitted=submitted)
        except Exception as error:
            self._console.say(f"{training.label}: that it is {word!r} could not be recorded: {error}")
