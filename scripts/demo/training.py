"""Trains the runs of the demo, one suite after the other, with a log and a line of progress."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from experiments.core.record.workdir import Workdir
from scripts.demo.parts import PRESET, Part

_EVERY = 5.0  # seconds between lines of progress without a terminal
_EXPECTED = 20.0  # seconds of training at the expected speed, which the measured speed is averaged with


def train(parts: Sequence[Part], everything: bool, out: Path, log: Path, stop: Event) -> int:
    """Trains the unfinished runs until `stop` is set; returns the exit status of the first suite that fails, else 0.

    Raises:
      KeyboardInterrupt: `stop` was set; the training so far is saved.
    """
    progress = _Progress(parts, everything, out)
    with log.open("wb") as file:
        for part in parts:
            only = f"--only=^({'|'.join(part.runs(everything))})$"
            command = [sys.executable, "-m", part.package, f"--preset={PRESET}", f"--out={out / part.experiment}", only]
            # In a session of its own, so that Ctrl-C comes here only, and the suite is stopped once.
            suite = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
            while suite.poll() is None and not stop.wait(0.3):
                progress.show()
            if stop.is_set():
                suite.terminate()
                progress.write("stopping, once what was trained is saved")
                suite.wait()
            progress.clear()
            if stop.is_set():
                raise KeyboardInterrupt
            if suite.returncode or progress.finished(part) < len(part.runs(everything)):
                return suite.returncode or 1
    return 0


class _Progress:
    """The progress of each part, and the time left."""

    def __init__(self, parts: Sequence[Part], everything: bool, out: Path):
        self._runs = {part: [Workdir(out / part.experiment / name) for name in part.runs(everything)] for part in parts}
        self._begun, self._shown = time.monotonic(), 0.0
        self._whole = sum(part.seconds * len(runs) for part, runs in self._runs.items())
        self._before = self._done = self._worth()
        self._end = self._begun + self._whole - self._done

    def finished(self, part: Part) -> int:
        """Counts the finished runs of a part."""
        return sum(run.summary.exists() for run in self._runs[part])

    def show(self) -> None:
        """Shows the progress; without a terminal every few seconds."""
        now = time.monotonic()
        if not sys.stdout.isatty() and now - self._shown < _EVERY:
            return
        if (done := self._worth()) > self._done:
            self._done = done
            rate = (now - self._begun + _EXPECTED) / (done - self._before + _EXPECTED)
            self._end = now + (self._whole - done) * rate
        counts = ", ".join(f"{part.title} {self.finished(part)}/{len(runs)}" for part, runs in self._runs.items())
        self.write(f"{counts}: {now - self._begun:.0f} s, about {max(1.0, self._end - now):.0f} s left")
        self._shown = now

    def write(self, line: str) -> None:
        """Writes a line; on a terminal it replaces the last one."""
        terminal = sys.stdout.isatty()
        print(f"\r{line:79}" if terminal else line, end="" if terminal else "\n", flush=True)

    def clear(self) -> None:
        """Removes the line from a terminal."""
        if sys.stdout.isatty():
            print(f"\r{'':79}\r", end="", flush=True)

    def _worth(self) -> float:
        return sum(part.seconds * self.finished(part) for part in self._runs)
