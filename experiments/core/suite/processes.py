"""Runs of a suite side by side, in processes that have a share of the processors each.

Small networks leave most of a machine idle: a step is over before its work could be divided. Runs side by side do not.
"""

import concurrent.futures
import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from absl import logging

from experiments.core import processors
from experiments.core.suite.plan import Fields, Suite, SuiteRun, find
from experiments.core.suite.trainer import Outcome, Stopped, Trainer, stoppable

_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class Processes:
    """Several processes, started when there is a run for them; they end with this one."""

    def __init__(self, suite: Suite, out: Path, command: Sequence[str], jobs: int):
        available = processors.available()
        self._slots = [_Slot(available[job::jobs], suite.package, out, command) for job in range(jobs)]
        self._free: queue.SimpleQueue[_Slot] = queue.SimpleQueue()
        for slot in self._slots:
            self._free.put(slot)
        self._threads = ThreadPoolExecutor(jobs)
        self._begun: list[Future[Outcome]] = []

    def begin(self, run: SuiteRun, setting: Fields) -> Future[Outcome]:
        """Has the run trained by a process that has none, as soon as there is one."""
        self._begun.append(self._threads.submit(self._attempt, run, setting))
        return self._begun[-1]

    def _attempt(self, run: SuiteRun, setting: Fields) -> Outcome:
        slot = self._free.get()
        try:
            return slot.attempt(run, setting)
        finally:
            self._free.put(slot)

    def close(self) -> None:
        """Stops what is under way, once it is saved; what is stopped again meanwhile ends at once."""
        for slot in self._slots:
            slot.send(signal.SIGTERM)
        try:
            concurrent.futures.wait(self._begun)
        except Stopped:
            for slot in self._slots:
                slot.send(signal.SIGKILL)
        self._threads.shutdown()
        for slot in self._slots:
            slot.join()


class _Slot:
    """A share of the processors, and the process that trains one run after another on it."""

    def __init__(self, share: list[int], package: str, out: Path, command: Sequence[str]):
        self._arguments = share, package, out, list(command)
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        self._sent: signal.Signals | None = None

    def attempt(self, run: SuiteRun, setting: Fields) -> Outcome:
        """Has the run trained; a process that dies of it costs this run alone.

        Raises:
          Stopped: the process was told to stop, and has saved what it trained.
        """
        if self._process is None:
            self._start()
            if self._sent is not None:  # while it was being started
                self.send(self._sent)
        assert self._process is not None
        assert self._connection is not None
        try:
            self._connection.send((run, dict(setting)))
            outcome: Outcome | None = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            code, self._process = self._process.exitcode, None
            return Outcome(error=f"its process ended with exit code {code}")
        if outcome is None:
            self._process.join()
            raise Stopped
        return outcome

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process, and to any that is started from now on."""
        self._sent = number
        if self._process is not None and self._process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def join(self) -> None:
        """Waits for the end of the process, which was told to stop."""
        if self._process is not None:
            self._process.join()

    def _start(self) -> None:
        # Fresh processes: what JAX has started does not survive a fork.
        spawn = multiprocessing.get_context("spawn")
        self._connection, its = spawn.Pipe()
        process = spawn.Process(target=_work, args=(its, *self._arguments), daemon=True)
        resource_tracker.ensure_running()  # by the first start, which would let signals through
        # Signals wait for the process to be ready for them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        its.close()  # so that the end of the process is noticed
        self._process = process


def _work(connection: Connection, share: list[int], package: str, out: Path, command: list[str]) -> None:
    """Trains what it is given until it is told to stop, or nobody is there to tell it."""
    os.setpgrp()  # a terminal's signals do not come here
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share)  # before XLA counts them
    logging.set_verbosity(logging.ERROR)  # of orbax, which has much to report
    with contextlib.suppress(EOFError, OSError):
        try:
            with stoppable():
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
                threading.Thread(target=_stop_without_parent, daemon=True).start()
                trainer = Trainer(find(package), out, command)
                while True:
                    connection.send(trainer.attempt(*connection.recv()))
        except Stopped:
            connection.send(None)


def _stop_without_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
