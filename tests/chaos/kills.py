"""Kills with -9 at random moments: while it starts, between rows, in the middle of a save."""

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.chaos.command import Row, TrainingCommand, ended, num_rows, wrong

MOMENTS = ("at a time", "after a row", "in a save")
_UNFINISHED = "*.orbax-checkpoint-tmp"  # what there is in checkpoints/ while one is saved
_POLL = 0.001


def kill(
    run: TrainingCommand, directory: Path, kills: int, rng: random.Random, expected: list[Row], seconds: float
) -> Iterator[tuple[str | None, str]]:
    """Kills runs below `directory`, so many times in all, and lets each go on until it is done.

    Args:
      run: to be killed.
      directory: of the workdirs; those of runs that ended well are removed.
      kills: how many.
      rng: chooses the moments.
      expected: the rows that each must have in the end.
      seconds: that it takes when it is left alone.

    Yields:
      The moment of each kill; and when a run is done None, with what is wrong with it, or with nothing.
    """
    number, left = 0, kills
    while left:
        number += 1
        workdir = directory / f"killed-{number}"
        process = run.start(workdir)
        while left and _waits(process, workdir, moment := rng.choice(MOMENTS), rng, seconds):
            process.send_signal(signal.SIGKILL)
            process.communicate()
            left -= 1
            yield moment, ""
            process = run.start(workdir)
        reason = wrong(workdir, ended(process), expected)
        if not reason:
            shutil.rmtree(workdir)
        yield None, f"{workdir}: {reason}" if reason else ""


def _waits(process: "subprocess.Popen[str]", workdir: Path, moment: str, rng: random.Random, seconds: float) -> bool:
    """Waits for a moment; whether it came before the process had ended."""
    if moment == "at a time":
        end = time.monotonic() + rng.uniform(0, seconds)
        return _until(process, lambda: time.monotonic() > end)
    if moment == "after a row":
        rows = num_rows(workdir) + rng.randint(1, 20)
        came = _until(process, lambda: num_rows(workdir) >= rows)
    else:
        came = True
        for _ in range(rng.randint(0, 3)):  # saves that are let pass
            came = came and _until(process, lambda: _saving(workdir)) and _until(process, lambda: not _saving(workdir))
        came = came and _until(process, lambda: _saving(workdir))
    time.sleep(rng.uniform(0, 0.05))
    return came and process.poll() is None


def _until(process: "subprocess.Popen[str]", condition: Callable[[], bool]) -> bool:
    while process.poll() is None:
        if condition():
            return True
        time.sleep(_POLL)
    return False


def _saving(workdir: Path) -> bool:
    return any(True for _ in (workdir / "checkpoints").glob(_UNFINISHED))
