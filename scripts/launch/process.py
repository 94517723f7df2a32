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

USAGE = 2  # the exit status of a mistake of the user's; not of these alone: a shell, tar and uv have it, too
_POLL = 0.1  # seconds
# After the number that gcloud or srun puts in front of the lines of a process.
_ERROR = re.compile(r"(?i)(\d+: |\[\d+\] )?(\[?error\b|[\w.]*(Error|Exception|Interrupt)\b|.*\berror:)")
# Answers of gcloud after which another try is useless; other failures, such as a lost network, may pass.
MISTAKE = re.compile(
    r"PERMISSION_DENIED|INVALID_ARGUMENT|UNAUTHENTICATED|UNIMPLEMENTED|NOT_FOUND"
    r"|invalid_grant|reauthentication|active account|required property"
    r"|unrecognized arguments|invalid choice|error: argument |arguments are required",
    re.I,
)
# What a training command says of a mistake, in its own process or a worker's.
_OWN_MISTAKE = re.compile(r"(\d+: |\[\d+\] )?error: ")
_ABSENT = re.compile(r"NOT_FOUND|not found|\b404\b", re.I)


class Failed(Exception):
    """A program, or a run, has failed: the reason in a line, the exit status, and whether to try `again` may help."""

    def __init__(self, reason: str, status: int = 1, *, again: bool = True):
        super().__init__(reason)
        self.status, self.again = status, again


class Unusable(Failed):
    """The machine of a slot cannot train any run; the other slots go on."""


class Stopped(Exception):
    """The launcher is asked to stop."""


class Console:
    """Starts programs and prints lines, for all threads; in a dry run it prints the commands, and does nothing."""

    def __init__(self, *, dry_run: bool = False):
        self.dry_run = dry_run
        self.stopping = threading.Event()  # from then on nothing is started, and runs are asked to end

    def say(self, line: str) -> None:
        """Prints a line whole. A closed output does not stop the launcher."""
        with contextlib.suppress(OSError):
            print(f"{line}\n", end="", flush=True)

    def wait(self, seconds: float) -> None:
        """Waits, unless the launcher is to stop."""
        if not self.dry_run and self.stopping.wait(seconds):
            raise Stopped

    def ask(self, command: Sequence[str], *, last: bool = False) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end and returns what it printed; a `last` one even though the launcher is to stop."""
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
                    _send(process)
        if not last:
            self.wait(0)
        return subprocess.CompletedProcess(command, _status(process), out, err)

    def do(self, command: Sequence[str], what: str = "", *, last: bool = False, may_lack: bool = False) -> str:
        """Runs a command that must succeed, or `may_lack` what it asks about; returns what it printed on stdout.

        Raises:
          Failed: it fails otherwise; the reason says `what` could not be done.
        """
        done = self.ask(command, last=last)
        if done.returncode and not (may_lack and _ABSENT.search(done.stderr)):
            reason = f"{what or command[0]}: {error_line(done.stderr + done.stdout)}"
            raise Failed(reason, done.returncode, again=not MISTAKE.search(done.stderr))
        return done.stdout

    def run(self, commands: Mapping[str, Sequence[str]], logs: Path, halt: Callable[[], None] = lambda: None) -> None:
        """Runs programs that are parts of one run to their end: when one fails, JAX ends the others within two minutes.

        What the command NAME prints is appended to NAME.log in `logs`. When the launcher is to stop, `halt` asks what
        the programs have started elsewhere to end.

        Raises:
          Failed: with the worst exit status of those that failed, and the error of the first of them.
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
                begins[name], processes[name] = file.tell(), _begin(command, file, subprocess.STDOUT)
        stopping, statuses = False, dict[str, int]()  # the first to end first
        while len(statuses) < len(processes):
            left = {name: process for name, process in processes.items() if name not in statuses}
            statuses |= {name: _status(process) for name, process in left.items() if process.poll() is not None}
            if self.stopping.is_set() and not stopping:
                stopping = True
                halt()
                for process in left.values():
                    _send(process)
            time.sleep(_POLL)
        if stopping:
            raise Stopped
        for name in filter(statuses.get, statuses):
            log, worst = logs / f"{name}.log", max(statuses.values())
            said = error_line(log.read_bytes()[begins[name] :].decode(errors="replace"))
            reason = f"{name}: exit status {statuses[name]}: {said}; log: {log}"
            raise Failed(reason, worst, again=worst != USAGE or not _OWN_MISTAKE.match(said))


def error_line(text: str) -> str:
    """The line of an output that says why the program failed: its first error, which others follow from; else its last.

    An exception may have another as its cause, which is then the line.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next(filter(_ERROR.match, lines), lines[-1] if lines else "it said nothing")


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


def _status(process: subprocess.Popen[str]) -> int:
    """An exit status as shells have it: 128 + N where signal N has ended a program."""
    return 128 - process.returncode if process.returncode < 0 else process.returncode


def _send(process: subprocess.Popen[str]) -> None:
    """Asks a process, and all that it has started, to end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
