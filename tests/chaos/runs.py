"""A run that is to be broken: how it is started, killed at a moment, and what it leaves."""

import os
import signal
import subprocess
import time

from experiments.core.record import metrics
from experiments.core.record.workdir import Workdir
from tests.experiments import support
from tests.experiments.processes import ended
from tests.experiments.support import rows_without_seconds

EPOCHS, STOPS = 60, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MOMENTS = ("at a time", "after a row", "in a save")
_UNFINISHED = "*.orbax-checkpoint-tmp"  # what there is in checkpoints/ while one is saved


def start(workdir):
    """Starts a small run of the pruning experiment, or lets it go on."""
    options = f"--config.epochs={EPOCHS}", "--config.checkpoint_every=2", "--config.download=False"
    # What users run: not the quick code of the tests.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return support.start(support.command(workdir, *options), env=environment, stdin=subprocess.DEVNULL)


def end(process):
    """Exit status, output and errors of a process; one that takes too long is killed."""
    return ended([process], timeout=600)[0]


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.communicate()


def num_rows(workdir):
    return len(metrics.lines(Workdir(workdir).metrics))


def check_done(workdir, ended, expected):
    """Asserts that a run has come to its end, quietly, with these rows."""
    status, _, err = ended
    assert (status, err) == (0, "")
    assert Workdir(workdir).is_done()
    assert rows_without_seconds(workdir) == expected


def wait(process, condition):
    """Waits until something is so; whether it came before the process had ended."""
    while process.poll() is None:
        if condition():
            return True
        time.sleep(0.001)
    return False


def wait_for_moment(process, workdir, moment, rng, seconds):
    """Waits for a random moment of this kind; whether it came before the process had ended."""

    def saving():
        return any(True for _ in (workdir / "checkpoints").glob(_UNFINISHED))

    if moment == "at a time":
        last = time.monotonic() + rng.uniform(0, seconds)
        return wait(process, lambda: time.monotonic() > last)
    if moment == "after a row":
        rows = num_rows(workdir) + rng.randint(1, 20)
        came = wait(process, lambda: num_rows(workdir) >= rows)
    else:
        came = True
        for _ in range(rng.randint(0, 3)):  # saves that are let pass
            came = came and wait(process, saving) and wait(process, lambda: not saving())
        came = came and wait(process, saving)
    time.sleep(rng.uniform(0, 0.05))
    return came and process.poll() is None
