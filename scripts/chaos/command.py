"""A run that is to be broken: how it is started, and what it leaves."""

import dataclasses
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.core.record import metrics
from experiments.core.record.workdir import Workdir

Row = dict[str, Any]

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_TIMEOUT = 600.0  # seconds that a run may take


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a process ended, and what it said."""

    status: int
    out: str
    err: str


@dataclasses.dataclass(frozen=True)
class TrainingCommand:
    """A run of which there may be many, each in a workdir of its own.

    Attributes:
      command: the training command for a workdir.
      environment: of it.
      root: where it is started.
    """

    command: Callable[[Path], list[str]]
    environment: Mapping[str, str]
    root: Path

    def start(self, workdir: Path) -> "subprocess.Popen[str]":
        """Starts it, or lets it go on."""
        with _heeding_signals():
            return subprocess.Popen(
                self.command(workdir),
                cwd=self.root,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

    def finish(self, workdir: Path) -> Ended:
        """Starts it, or lets it go on, and waits for its end."""
        return ended(self.start(workdir))


@contextmanager
def _heeding_signals() -> Iterator[None]:
    """Within it no signal is ignored, as under nohup it may be: what is started would ignore it, too."""
    ignored = [number for number in STOPS if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def ended(process: "subprocess.Popen[str]") -> Ended:
    """Waits for a process; one that takes too long is killed."""
    try:
        out, err = process.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    return Ended(process.returncode, out, err)


def num_rows(workdir: Path) -> int:
    """The rows that a run has written so far."""
    return len(metrics.lines(Workdir(workdir).metrics))


def wait_for_rows(process: "subprocess.Popen[str]", workdir: Path, rows: int) -> None:
    """Returns once a run has written so many rows, or has ended."""
    while num_rows(workdir) < rows and process.poll() is None:
        time.sleep(0.002)


def numbers(workdir: Path) -> list[Row]:
    """The rows of a run, less what may differ from those of another: the times."""
    rows = metrics.read(Workdir(workdir).metrics)
    return [{name: value for name, value in row.items() if name not in ("seconds", "performance")} for row in rows]


def wrong(workdir: Path, end: Ended, expected: list[Row]) -> str:
    """What is wrong with a run that should have come to its end with the `expected` rows; empty: nothing."""
    if end.status:
        lines = end.err.strip().splitlines() or ["it said nothing"]
        return f"exit status {end.status}: {lines[-1]}"
    if end.err:
        return f"it said on stderr: {end.err.splitlines()[0]}"
    if not Workdir(workdir).is_done():
        return "it has no summary"
    rows = numbers(workdir)
    if rows == expected:
        return ""
    different = next((at for at, (row, other) in enumerate(zip(rows, expected, strict=False)) if row != other), None)
    return f"{len(rows)} rows, not {len(expected)}" if different is None else f"row {different + 1} differs"
