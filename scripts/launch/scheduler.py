"""Trains the runs of a sweep, several at a time, and tries again where that may help."""

import argparse
import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from experiments.core.errors import UsageError
from scripts.launch import state
from scripts.launch.process import Console, Failed, Stopped, Unusable
from scripts.launch.training import Training

LONGEST_PAUSE = 1800.0  # seconds


class Platform:
    """Machines that train runs, `--jobs` of them at a time, each in a slot of its own.

    Attributes:
      retries: attempts in a row without progress that a run may have besides the first, unless the user says otherwise.
      submits: whether runs are jobs that go on when the launcher is stopped, and that the next launcher waits for.
      type: of TPU that a run has, such as `v6e-16`; empty if it has none.
      num_devices: that JAX will see in a run; None if it is told by the type, or not known.
      num_processes: that share the devices.
      far: whether they see neither the disk nor the directories of this machine.
      data: a folder of data in a bucket, `gs://BUCKET/FOLDER`, that they have; None if none is named.
    """

    retries = 3
    submits = False
    type = ""
    num_devices: int | None = None
    num_processes = 1
    far = False
    data: str | None = None

    def __init__(self, options: argparse.Namespace, console: Console):
        self._options, self._console = options, console
        self._left: queue.SimpleQueue[Training] = queue.SimpleQueue()

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

    def go(self, trainings: Sequence[Training]) -> int:
        """Trains runs; returns the worst exit status of those that failed.

        Raises:
          UsageError: the user has to correct something first.
          Stopped: the launcher was asked to stop; runs have saved and ended, or go on if they were submitted.
        """
        slots = range(self._options.jobs)
        self.prepare()
        if self._console.dry_run:  # one after the other, so that what is printed can be read
            for number, training in enumerate(trainings):
                self.train(training, number % len(slots))
            for slot in slots:
                self.release(slot, keep=False)
            return 0
        for training in trainings:
            self._left.put(training)
        # Also for slots without a run: an earlier launcher may have died before it gave their machines back.
        with ThreadPoolExecutor(len(slots)) as pool:
            statuses = list(pool.map(self._work, slots))
        if self._console.stopping.is_set():
            raise Stopped
        return max(statuses)

    def _work(self, slot: int) -> int:
        """Trains runs one after the other on the machine of a slot, and gives it back; returns the worst status."""
        worst = 0
        try:
            while True:
                worst = max(worst, self._train(self._left.get_nowait(), slot))
        except (queue.Empty, Stopped):
            pass
        except Unusable as error:
            worst = max(worst, error.status)
        except UsageError:  # the same for all
            self._console.stopping.set()
            raise
        finally:  # a machine that nobody needs any more does not wait for the other slots
            released = self.release(slot, keep=self._console.stopping.is_set())
        return worst if released else max(worst, 1)

    def _train(self, training: Training, slot: int) -> int:
        """Tries to train a run until it is done or that is no use; returns the exit status of the last attempt."""
        console = self._console
        failures, reached, reason, pause = 0, state.reached(training)[0], "", 0.0
        while True:
            try:
                console.wait(pause)
                state.record(training, state.SUBMITTED if self.submits else state.RUNNING, reason)
                verb = "starts" if reached < 0 else "resumes"
                console.say(f"{training.label}: {verb}, in {training.workdir}; logs: {training.logs}")
                self.train(training, slot)
                if (end := state.read(training)).word == state.DONE:
                    console.say(f"{training.label}: done")
                    return 0
                failed = Failed(f"it ended before it was done ({end.reached or 'at the start'}); logs: {training.logs}")
            except Stopped:
                if not self.submits:
                    state.record(training, state.TO_DO, reason)
                raise
            except UsageError:
                raise
            except Exception as error:  # of whatever kind, for example of a bucket that cannot be reached
                failed = error if isinstance(error, Failed) else Failed(f"{type(error).__name__}: {error}")
            reason, now = str(failed), state.reached(training)[0]
            failures, reached = (1 if now > reached else failures + 1), max(now, reached)
            retries = self.retries if self._options.retries is None else self._options.retries
            if not failed.again or failures > retries:
                state.record(training, state.FAILED, reason)
                console.say(f"{training.label}: FAILED: {reason}")
                if isinstance(failed, Unusable):
                    raise failed
                return failed.status
            pause = min(self._options.pause_seconds * 2 ** (failures - 1), LONGEST_PAUSE)
            console.say(f"{training.label}: {reason}; attempt {failures} of {retries} more in {pause:.0f} s")
            state.record(training, state.RUNNING, reason)
