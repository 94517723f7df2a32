"""Trains the runs of the demo: one suite after the other into a log, and one line says how far they are."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.core.record.workdir import Workdir
from scripts.demo.parts import PRESET, Part

_EVERY = 5.0  # seconds between lines where there is no terminal to write over one


def train(parts: Sequence[Part], everything: bool, out: Path, log: Path) -> int:
    """Trains what is not done yet; returns the exit status of the first suite that fails, else 0."""
    progress = _Progress(parts, everything, out)
    with log.open("wb") as file:
        for part in parts:
            only = f"--only=^({'|'.join(part.runs(everything))})$"
            command = [sys.executable, "-m", part.package, f"--preset={PRESET}", f"--out={out / part.experiment}", only]
            # A session of its own: Ctrl-C comes here alone, and the suite is told once.
            suite = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                while suite.poll() is None:
                    progress.show()
                    time.sleep(0.3)
            except BaseException:
                suite.terminate()
                suite.wait()  # until what was trained is saved
                raise
            finally:
                progress.clear()
            if suite.returncode or progress.finished(part) < len(part.runs(everything)):
                return suite.returncode or 1
    return 0


class _Progress:
    """How many runs of each part are done, and the time left."""

    def __init__(self, parts: Sequence[Part], everything: bool, out: Path):
        self._runs = {part: [Workdir(out / part.experiment / name) for name in part.runs(everything)] for part in parts}
        self._begun, self._shown = time.monotonic(), 0.0
        self._whole = sum(part.seconds * len(runs) for part, runs in self._runs.items())
        self._before = self._done = self._worth()
        self._end = self._begun + self._whole - self._done

    def finished(self, part: Part) -> int:
        """How many runs of a part are done."""
        return sum(run.summary.exists() for run in self._runs[part])

    def show(self) -> None:
        """Writes the line; without a terminal a new one every few seconds."""
        now, terminal = time.monotonic(), sys.stdout.isatty()
        if not terminal and now - self._shown < _EVERY:
            return
        if (done := self._worth()) > self._done:
            self._done = done
            self._end = now + (self._whole - done) * (now - self._begun) / (done - self._before)
        counts = ", ".join(f"{part.title} {self.finished(part)}/{len(runs)}" for part, runs in self._runs.items())
        line = f"{counts}: {now - self._begun:.0f} s, about {max(1.0, self._end - now):.0f} s left"
        print(f"\r{line:79}" if terminal else line, end="" if terminal else "\n", flush=True)
        self._shown = now

    def clear(self) -> None:
        """Takes the line off a terminal."""
        if sys.stdout.isatty():
            print(f"\r{'':79}\r", end="", flush=True)

    def _worth(self) -> float:
        return sum(part.seconds * self.finished(part) for part in self._runs)
