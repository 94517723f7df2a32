"""Programs that are started here: what they say, how they end, and how all of them are stopped."""

import collections
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TextIO

from experiments.core.errors import UsageError

USAGE = 2  # the exit status of a mistake that trying again does not help
_LOST_CONNECTION = 255
# What comes after the words of a program that has failed: from whoever has carried them, and from JAX's own threads.
_TRANSPORT = re.compile(
    r"ERROR: \(gcloud\.|(kex_|packet_|client_loop|ssh:|srun:|slurmstepd:|Connection )"
    r"|.*command terminated with exit code|#+ Command execution on worker|[EF]\d{4} \d\d:\d\d:\d\d\S* +\d+ \w+\.(cc|h):"
)
PATIENCE = 15.0  # seconds that a process has to end in once it is asked to


class Failed(Exception):
    """A program, or a run, has failed: the reason, in a line.

    Attributes:
      status: the exit status.
      again: whether to try once more may help.
    """

    def __init__(self, reason: str, status: int = 1, *, again: bool = True):
        super().__init__(reason)
        self.status, self.again = status, again


class Unusable(Failed):
    """What a slot's runs would be trained on is of no use as it is: it gets no further run, and others go on."""

    def __init__(self, reason: str, status: int = USAGE):
        super().__init__(reason, status, again=False)


class Stopped(Exception):
    """The launcher is to stop.

    Attributes:
      goes_on: whether the run that it was at goes on elsewhere, or waits there for its turn.
    """

    def __init__(self, *, goes_on: bool = False):
        super().__init__()
        self.goes_on = goes_on


class Console:
    """Starts programs, and passes on what they print; one for all threads.

    Attributes:
      dry_run: print the commands, and do nothing.
      stopping: set when the launcher is to stop; from then on nothing is started, and runs are asked to end.
      killing: set when they are to end at once.
    """

    def __init__(self, *, dry_run: bool = False, out: TextIO | None = None):
        self.dry_run = dry_run
        self.stopping, self.killing = threading.Event(), threading.Event()
        self._out = out
        self._lock = threading.RLock()  # a signal may come while it is held
        self._asked: set[subprocess.Popen[str]] = set()

    def say(self, line: str) -> None:
        """Prints a line whole, whoever else prints; if nobody reads any more, as of a pipe, nothing comes of it."""
        with self._lock, contextlib.suppress(OSError):
            print(line, file=self._out or sys.stdout, flush=True)

    def wait(self, seconds: float) -> None:
        """Waits, unless the launcher is to stop."""
        if not self.dry_run and self.stopping.wait(seconds):
            raise Stopped

    def ask(
        self, command: Sequence[str], *, last: bool = False, timeout: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, quietly, and returns what it printed; nothing in a dry run.

        Args:
          command: and its arguments.
          last: run it even though the launcher is to stop.
          timeout: seconds after which it is ended.

        Returns:
          Its exit status, 128 + N if signal N has ended it, and what it printed.
        """
        if (self.dry_run or not last) and self._is_only_shown(command):
            return subprocess.CompletedProcess(command, 0, "", "")
        process = begin(command, stderr=subprocess.PIPE)
        with self._lock:
            self._asked.add(process)
        try:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                send(process, signal.SIGKILL)
                out, err = process.communicate()
        finally:
            with self._lock:
                self._asked.discard(process)
        if self.stopping.is_set() and not last:
            raise Stopped
        return subprocess.CompletedProcess(command, _status(process.returncode), out, err)

    def run(self, command: Sequence[str]) -> str:
        """Like `ask`, for a command that must succeed; returns what it printed on stdout."""
        done = self.ask(command)
        if done.returncode:
            raise Failed(f"{command[0]}: {error_line(done.stderr + done.stdout)}", done.returncode)
        return done.stdout

    def stream(
        self, command: Sequence[str], prefix: str, log: Path | None, variables: Mapping[str, str] | None = None
    ) -> "Stream":
        """Starts a command whose lines are printed after `prefix` and appended to the file `log`.

        Args:
          command: and its arguments.
          prefix: of each line on the terminal.
          log: a file; its directory is made.
          variables: of the environment, to be set for the command.
        """
        shown = [*(["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []), *command]
        return Stream(self, None if self._is_only_shown(shown) else command, prefix, log, variables or {})

    def stop(self) -> None:
        """Keeps anything more from being started, and ends what is asked; whoever waits for runs ends them.

        The second time, everything is to end at once.
        """
        if self.stopping.is_set():
            self.killing.set()
        self.stopping.set()
        with self._lock:
            for process in self._asked:
                send(process, signal.SIGTERM)

    def _is_only_shown(self, command: Sequence[str]) -> bool:
        if self.dry_run:
            self.say(shlex.join(command))
        elif self.stopping.is_set():
            raise Stopped
        return self.dry_run


class Stream:
    """A program whose lines are passed on while it runs; in a dry run, none.

    Attributes:
      lines: its last ones.
    """

    def __init__(
        self,
        console: Console,
        command: Sequence[str] | None,
        prefix: str,
        log: Path | None,
        variables: Mapping[str, str],
    ):
        self.lines: collections.deque[str] = collections.deque(maxlen=200)
        self._process = begin(command, stderr=subprocess.STDOUT, variables=variables) if command else None
        self._thread = threading.Thread(target=self._follow, args=(console, prefix, log), daemon=True)
        self._thread.start()

    def _follow(self, console: Console, prefix: str, log: Path | None) -> None:
        if self._process is None:
            return
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            try:
                self._pass_on(lines, console, prefix, log)
            except OSError as error:  # of the log, as when the disk is full; the run goes on, and is heard
                console.say(f"{prefix}{log} is not written any more: {error}")
                self._pass_on(lines, console, prefix, None)
            finally:
                for _ in lines:  # whatever happens here, it must not wait for a reader
                    pass
                self._process.wait()

    def _pass_on(self, lines: IO[str], console: Console, prefix: str, log: Path | None) -> None:
        with _appending(log) as file:
            for line in lines:
                self.lines.append(line.rstrip("\n"))
                console.say(prefix + self.lines[-1])
                if file:
                    file.write(line)
                    file.flush()

    def poll(self) -> int | None:
        """The exit status, once it has ended and all its lines are passed on; 128 + N if signal N has ended it."""
        if self._process is None:
            return 0
        if self._thread.is_alive() or self._process.returncode is None:
            return None
        return _status(self._process.returncode)

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal, if it runs."""
        if self._process:
            send(self._process, number)

    def why(self) -> str:
        """How it failed."""
        status = self.poll()
        assert status is not None
        if 128 < status <= 128 + signal.NSIG and not self.lines:
            return f"ended by signal {status - 128}"
        # 255 is what ssh ends with when it is the connection that has failed: then that is the reason.
        said = error_line("\n".join(self.lines), of_transport=status == _LOST_CONNECTION)
        return (
            f"ended by signal {status - 128}, after: {said}"
            if status in (137, 143)
            else f"exit status {status}: {said}"
        )


@contextlib.contextmanager
def _appending(log: Path | None) -> Iterator[TextIO | None]:
    if log is None:
        yield None
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        yield file


def together(
    console: Console,
    streams: Mapping[str, Stream],
    *,
    halt: Callable[[], None] = lambda: None,
    patience: float = PATIENCE,
) -> None:
    """Waits for programs that are parts of one run: when one fails, the others are stopped.

    Args:
      console: that started them.
      streams: by name.
      halt: called before they are stopped, for what they have started elsewhere.
      patience: seconds that they have to end in, when one of them has failed.

    Raises:
      Failed: with the worst exit status of those that failed by themselves, and the last error of the first of them.
      Stopped: the launcher is to stop; all have been asked to end, and have.
    """
    while _running(streams) and not _failures(streams) and not console.stopping.is_set():
        time.sleep(0.05)
    if console.stopping.is_set():
        try:
            halt()
        finally:
            _end(streams, console.killing.is_set)
        raise Stopped
    if failures := _failures(streams):
        # In the words of the first: what the others say of a process that is gone is not the reason.
        name, stream = next(iter(failures.items()))
        status = max(stream.poll() or 0 for stream in failures.values())
        halt()
        deadline = time.monotonic() + patience
        _end(streams, lambda: time.monotonic() > deadline or console.killing.is_set())
        raise Failed(f"{name}: {stream.why()}", status, again=status != USAGE)


def _running(streams: Mapping[str, Stream]) -> list[Stream]:
    return [stream for stream in streams.values() if stream.poll() is None]


def _failures(streams: Mapping[str, Stream]) -> dict[str, Stream]:
    return {name: stream for name, stream in streams.items() if stream.poll()}


def _end(streams: Mapping[str, Stream], at_once: Callable[[], bool]) -> None:
    """Asks all to end, and waits until they have; from when on `at_once()` holds they are killed."""
    for stream in _running(streams):
        stream.send(signal.SIGTERM)
    while running := _running(streams):
        if at_once():
            for stream in running:
                stream.send(signal.SIGKILL)
        time.sleep(0.05)


def begin(command: Sequence[str], stderr: int, variables: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Starts a program, whose output is to be read.

    Raises:
      UsageError: there is no such program.
    """
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,  # a question of a program that nobody sees must not wait for an answer
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            env=os.environ | dict(variables or {}),
            start_new_session=True,  # Ctrl-C is for the launcher alone, which passes it on
        )
    except FileNotFoundError as error:
        raise UsageError(f"there is no program {command[0]!r} here: see scripts/launch/README.md") from error


def error_line(text: str, *, of_transport: bool = False) -> str:
    """The last line that speaks of an error, else the last one with anything in it.

    Args:
      text: the lines.
      of_transport: whether those count as any other in which ssh, gcloud, srun and the like say that a program has
        failed; else only where there are no others.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [] if of_transport else [line for line in lines if not _TRANSPORT.match(line)]
    return (error_lines("\n".join(own)) or error_lines(text) or lines or ["it said nothing"])[-1]


def error_lines(text: str) -> list[str]:
    """The lines that speak of an error."""
    pattern = r"(?i)(\[?error\b|error:|[\w.]*(Error|Exception|Interrupt)\b)|.*\bERROR:"
    return [line.strip() for line in text.splitlines() if re.match(pattern, line.strip())]


def _status(returncode: int) -> int:
    """An exit status as shells have it: 128 + N where signal N has ended a program."""
    return 128 - returncode if returncode < 0 else returncode


def send(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Sends a signal to a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
