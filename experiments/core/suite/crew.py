"""Who trains the runs of a suite: this process, or several at once, each on its share of the processors.

Small networks leave most of a machine idle: a step is over before its work could be divided. Runs side by side do not.
"""

import contextlib
import dataclasses
import functools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Protocol

from absl import logging

from experiments.core import processors
from experiments.core.errors import UsageError
from experiments.core.suite.plan import Fields, Suite, SuiteRun, find
from experiments.core.suite.trainer import DataError, Stopped, Took, Trainer, stoppable

_FOR_THE_FIRST = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclasses.dataclass(frozen=True)
class Ended:
    """A run that is over.

    Attributes:
      number: of the run, as it was begun.
      took: how long it trained; None if it failed.
      error: why it failed, in one line; None if it did not.
      no_data: whether it failed for want of data, of which its process had found none before.
    """

    number: int
    took: Took | None = None
    error: str | None = None
    no_data: bool = False


class Crew(Protocol):
    """Takes runs as long as it is free, and says when one is over."""

    def is_free(self) -> bool:
        """Whether a run may be begun."""

    def begin(self, number: int, run: SuiteRun, setting: Fields) -> None:
        """Begins a run, which is known by its number."""

    def wait(self) -> Ended:
        """The next of the runs that were begun to be over.

        Raises:
          Stopped: a signal came; what was trained is saved, or will be by the time that the crew is closed.
        """

    def close(self) -> None:
        """Stops what is under way, once it is saved."""


class Alone:
    """This process; how far a run is stands in lines of their own below the one that was begun for it."""

    def __init__(self, suite: Suite, out: Path, command: Sequence[str]):
        self._trainer = Trainer(suite, out, command)
        self._turn: tuple[int, SuiteRun, Fields] | None = None

    def is_free(self) -> bool:
        """Whether a run may be begun."""
        return self._turn is None

    def begin(self, number: int, run: SuiteRun, setting: Fields) -> None:
        """Takes the run, which is trained in `wait`."""
        self._turn = number, run, setting

    def wait(self) -> Ended:
        """Trains the run that was begun."""
        assert self._turn is not None
        (number, run, setting), self._turn = self._turn, None
        said, out = False, sys.stdout  # which is another while a run trains

        def say(line: str) -> None:
            nonlocal said
            print(f"\n    {line}", end="", flush=True, file=out)
            said = True

        try:
            return _attempt(number, lambda: self._trainer.train(run, setting, say))
        finally:
            if said:
                print()  # the run's result stands alone in the next line

    def close(self) -> None:
        """Nothing is under way."""


@dataclasses.dataclass
class _Member:
    """A process of the crew, the processors that are its own, and the run that it trains.

    It is told of runs by `connection`, and to stop by the end of `life`, which comes if this process dies, too: signals
    are lost on one that is still being started.
    """

    process: SpawnProcess
    connection: Connection
    life: Connection
    share: list[int]
    turn: tuple[int, SuiteRun] | None = None


class Processes:
    """Several processes, started when there is a run for them; they end with this one."""

    def __init__(self, suite: Suite, out: Path, command: Sequence[str], jobs: int):
        self._arguments = suite.package, out, list(command)
        self._shares = [processors.available()[job::jobs] for job in range(jobs)]
        self._members: list[_Member] = []

    def is_free(self) -> bool:
        """Whether a run may be begun."""
        return len(self._busy()) < len(self._shares)

    def begin(self, number: int, run: SuiteRun, setting: Fields) -> None:
        """Hands the run to a process that has none."""
        member = next((member for member in self._members if member.turn is None), None) or self._hire()
        member.turn = number, run
        with contextlib.suppress(OSError):  # of one that is dead: `wait` finds it
            member.connection.send((number, run, dict(setting)))

    def wait(self) -> Ended:
        """Says how far the runs are until one is over."""
        while True:
            for ready in wait([member.connection for member in self._busy()]):
                (member,) = (member for member in self._members if member.connection is ready)
                if (ended := self._hear(member)) is not None:
                    return ended

    def close(self) -> None:
        """Stops what is under way, once it is saved; what is stopped again meanwhile ends at once."""
        for member in self._busy():
            member.life.close()
        try:
            self._dismiss()
        except Stopped:
            for member in self._members:
                member.process.kill()
            self._dismiss()

    def _dismiss(self) -> None:
        for member in [*self._members]:
            # What is stopped has something to say, and would wait for somebody to hear it.
            while member.turn is not None and self._hear(member, quiet=True) is None:
                pass
            self._forget(member)

    def _forget(self, member: _Member) -> None:
        member.connection.close()
        member.process.join()
        member.life.close()
        member.turn = None
        if member in self._members:
            self._members.remove(member)

    def _busy(self) -> list[_Member]:
        return [member for member in self._members if member.turn is not None]

    def _hire(self) -> _Member:
        # Fresh processes: what JAX has started does not survive a fork.
        spawn = multiprocessing.get_context("spawn")
        share = next(share for share in self._shares if all(member.share != share for member in self._members))
        ours, its = spawn.Pipe()
        its_life, life = spawn.Pipe(duplex=False)
        process = spawn.Process(target=_work, args=(its, its_life, share, *self._arguments))
        resource_tracker.ensure_running()  # by the first start, which would let signals through
        # What goes to all of us in the meantime, as from a terminal, is for the first process, which this one is.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_FIRST)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for theirs in (its, its_life):  # so that the end of the process is noticed
            theirs.close()
        self._members.append(_Member(process, ours, life, share))
        return self._members[-1]

    def _hear(self, member: _Member, *, quiet: bool = False) -> Ended | None:
        assert member.turn is not None
        number, run = member.turn
        try:
            said = member.connection.recv()
        except (EOFError, OSError):
            self._forget(member)
            return Ended(number, error=f"its process ended with exit code {member.process.exitcode}")
        if isinstance(said, str):
            if not quiet:
                try:
                    print(f"    {run.name}: {said}", flush=True)
                except OSError:  # nobody reads it any more
                    raise Stopped from None
            return None
        member.turn = None
        if isinstance(said, Stopped) and not quiet:
            raise said
        return said if isinstance(said, Ended) else Ended(number, error="stopped")


def _attempt(number: int, train: Callable[[], Took]) -> Ended:
    """One run that fails must not cost the night's others."""
    try:
        return Ended(number, train())
    except Exception as error:
        return Ended(number, error=in_a_line(error), no_data=isinstance(error, DataError))


def in_a_line(error: Exception) -> str:
    """What is said of a run that failed."""
    if isinstance(error, UsageError):
        return str(error)
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"


def _work(
    connection: Connection, life: Connection, share: list[int], package: str, out: Path, command: list[str]
) -> None:
    """A process of the crew: trains what it is told to, until nobody is there to tell it."""
    os.setpgrp()  # a terminal's signals do not come here
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored; here it is what stops a run
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FOR_THE_FIRST)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share)  # before XLA counts them
    logging.set_verbosity(logging.ERROR)  # of orbax, which has much to report
    with contextlib.suppress(EOFError, OSError), stoppable():
        try:
            threading.Thread(target=_stop_at_the_end_of, args=(life,), daemon=True).start()
            trainer = Trainer(find(package), out, command)
            while True:
                number, run, setting = connection.recv()
                connection.send(_attempt(number, functools.partial(trainer.train, run, setting, connection.send)))
        except Stopped as stopped:
            connection.send(stopped)


def _stop_at_the_end_of(life: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        life.recv()
    os.kill(os.getpid(), signal.SIGHUP)
