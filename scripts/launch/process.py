"""Programs that are started here: how they end, what they said last, and how all of them are stopped."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from experiments.core.errors import UsageError

USAGE = 2  # the exit status of a mistake that trying again does not help
PATIENCE = 15.0  # seconds that the others have to end in, once one of several programs has failed
_POLL = 0.1  # seconds
_ERROR = re.compile(r"(?i)\[?error\b|[\w.]*(Error|Exception|Interrupt)\b|.*\berror:")
_OF_JAX = re.compile(r"[EF]\d{4} \d\d:\d\d:\d\d")  # of its threads, after the error that ends the program
# gcloud or srun says that the first program of several has failed; the others fail after it, for that.
_ONE_FAILED = re.compile(
    r"##### Command execution on worker \d+ failed|srun: error: .*\btasks? \d.*: Exited|slurmstepd:"
)
_NUMBER_OF_PROCESS = re.compile(r"^(\d+: |\[\d+\] )")


class Failed(Exception):
    """A program, or a run, has failed: the reason, in a line.

    Attributes:
      status: the exit status.
      again: whether another attempt may help.
    """

    def __init__(self, reason: str, status: int = 1, *, again: bool = True):
        super().__init__(reason)
        self.status, self.again = status, again


class Unusable(Failed):
    """The machine of a slot cannot train any run; the other slots go on."""


class Stopped(Exception):
    """The launcher is asked to stop."""


class Console:
    """Starts programs and prints lines, for all threads.

    Attributes:
      dry_run: print the commands, and do nothing.
      stopping: set when the launcher is to stop; from then on nothing is started, and runs are asked to end.
    """

    def __init__(self, *, dry_run: bool = False):
        self.dry_run, self.stopping = dry_run, threading.Event()
        self._lock = threading.RLock()  # a signal may come while it is held

    def say(self, line: str) -> None:
        """Prints a line whole. A closed output does not stop the launcher."""
        with self._lock, contextlib.suppress(OSError):
            print(line, flush=True)

    def wait(self, seconds: float) -> None:
        """Waits, unless the launcher is to stop."""
        if not self.dry_run and self.stopping.wait(seconds):
            raise Stopped

    def ask(self, command: Sequence[str], *, last: bool = False) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end and returns what it printed; in a dry run, prints the command instead.

        Args:
          command: and its arguments.
          last: run it even though the launcher is to stop.
        """
        if self.dry_run:
            self.say(shlex.join(command))
            return subprocess.CompletedProcess(command, 0, "", "")
        if not last:
            self.wait(0)
        process = _begin(command, subprocess.PIPE, subprocess.PIPE)
        while True:
            try:
                out, err = process.communicate(timeout=_POLL)
                break
            except subprocess.TimeoutExpired:
                if self.stopping.is_set() and not last:
                    _send(process, signal.SIGTERM)
        if not last:
            self.wait(0)
        return subprocess.CompletedProcess(command, _status(process.returncode), out, err)

    def do(self, command: Sequence[str]) -> None:
        """Runs a command that must succeed.

        Raises:
          Failed: it does not.
        """
        done = self.ask(command)
        if done.returncode:
            raise Failed(f"{command[0]}: {error_line(done.stderr + done.stdout)}", done.returncode)

    def run(self, commands: Mapping[str, Sequence[str]], logs: Path, halt: Callable[[], None] = lambda: None) -> None:
        """Runs programs that are parts of one run to their end: when one fails, the others are stopped.

        Args:
          commands: by name; what NAME prints is appended to NAME.log.
          logs: the directory of these files.
          halt: asks what the programs have started elsewhere to end, when the launcher is to stop.

        Raises:
          Failed: with the worst exit status of those that failed, and the last error of the first of them.
          Stopped: the launcher is to stop; all have ended.
        """
        if self.dry_run:
            for command in commands.values():
                self.say(shlex.join(command))
            return
        self.wait(0)
        logs.mkdir(parents=True, exist_ok=True)
        begins, processes = {}, {}
        for name, command in commands.items():
            with (logs / f"{name}.log").open("ab") as file:
                begins[name] = file.tell()
                processes[name] = _begin(command, file, subprocess.STDOUT)

        def running() -> list[subprocess.Popen[str]]:
            return [process for process in processes.values() if process.poll() is None]

        def failed() -> dict[str, int]:
            return {name: _status(process.returncode) for name, process in processes.items() if process.poll()}

        while running() and not failed() and not self.stopping.is_set():
            time.sleep(_POLL)
        failures, stopping = failed(), self.stopping.is_set()
        if stopping:
            halt()
        for process in running():
            _send(process, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while left := running():
            if not stopping and time.monotonic() > deadline:  # they may wait for the one that failed
                for process in left:
                    _send(process, signal.SIGKILL)
            time.sleep(_POLL)
        if stopping:
            raise Stopped
        for name, status in failures.items():
            log = logs / f"{name}.log"
            said = error_line(log.read_bytes()[begins[name] :].decode(errors="replace"))
            worst = max(failures.values())
            raise Failed(f"{name}: exit status {status}: {said}; log: {log}", worst, again=worst != USAGE)


def error_line(text: str) -> str:
    """The line of an output that says why the program failed: its last error, or its last line.

    Args:
      text: the output; of several processes, each line may have the number of its process in front.
    """
    lines = [_NUMBER_OF_PROCESS.sub("", line.strip()) for line in text.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if _ERROR.match(line) and not _OF_JAX.match(line)]
    end = next((number for number, line in enumerate(lines) if _ONE_FAILED.match(line)), len(lines))
    first = [number for number in errors if number < end]
    return lines[(first or errors or [-1])[-1]] if lines else "it said nothing"


def _begin(command: Sequence[str], stdout: int | IO[bytes], stderr: int) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,  # a question that nobody sees must not wait for an answer
            stdout=stdout,
            stderr=stderr,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the launcher alone, which passes it on
        )
    except FileNotFoundError as error:
        raise UsageError(f"there is no program {command[0]!r} here: see scripts/launch/README.md") from error


def _status(returncode: int) -> int:
    """An exit status as shells have it: 128 + N where signal N has ended a program."""
    return 128 - returncode if returncode < 0 else returncode


def _send(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Sends a signal to a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
