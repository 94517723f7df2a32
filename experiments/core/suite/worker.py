"""Trains runs of a suite: in this process, or side by side in others that have a share of the processors each.

Small networks leave most of a machine idle: a step is over before its work could be divided. Runs side by side do not.
"""

import concurrent.futures
import contextlib
import importlib
import io
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import jax
import ml_collections
from absl import logging

from experiments.core.errors import UsageError, first_line
from experiments.core.record.environment import processors, when_the_parent_ends
from experiments.core.record.workdir import Workdir
from experiments.core.training import train

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(BaseException):
    """SIGTERM or SIGINT; not an Exception, so that nothing on the way takes it for a failed run."""


class Job(NamedTuple):
    """A run that can begin; the experiment and the run by name."""

    experiment: str
    name: str
    config: ml_collections.ConfigDict
    path: Path
    command: Sequence[str]


def attempt(job: Job) -> float | str:
    """Trains a run to its end, and prints now and then how far it is; one that fails must not cost the others.

    Returns:
      The seconds that it took, or why it failed, in a line.

    Raises:
      Stopped: at SIGTERM or SIGINT; what was trained is saved, all of it if the run was about to end.
    """
    recipe = importlib.import_module(f"experiments.{job.experiment}.experiment").RECIPE
    start, workdir = time.monotonic(), Workdir(job.path)
    try:
        with contextlib.redirect_stdout(LatestLine(job.name)):
            asked_to_stop = train.start(recipe, job.config, workdir, job.command)
        if asked_to_stop or not workdir.is_done():
            raise Stopped
        return time.monotonic() - start
    except Exception as error:
        return in_a_line(error)
    finally:
        jax.clear_caches()  # no two runs share a compiled function, and dozens of them fill the memory


class Pool:
    """A process for each of several shares of the processors, started when there is a run for it; all end with ours.

    Each is a pool of its own, so that a process that dies costs its run alone.
    """

    def __init__(self, processes: int):
        available = processors()
        self._shares = [available[number::processes] for number in range(processes)]
        self._executors: dict[int, ProcessPoolExecutor] = {}
        self._under_way: dict[Future[float | str], tuple[int, Job]] = {}  # the share and the run of each

    def attempts(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, float | str]]:
        """Trains runs that wait for none of each other; yields the outcome of each, as `attempt` has it, at its end.

        Raises:
          Stopped: a process was told to stop, and has saved what it trained.
        """
        waiting = list(jobs)
        while waiting or self._under_way:
            taken = {share for share, _ in self._under_way.values()}
            free = [share for share in range(len(self._shares)) if share not in taken]
            if waiting and free:
                self._begin(free[0], waiting.pop(0))
                continue
            done = concurrent.futures.wait(self._under_way, return_when=concurrent.futures.FIRST_COMPLETED).done
            for future in done:
                share, job = self._under_way.pop(future)
                try:
                    yield job, future.result()
                except BrokenProcessPool:
                    self._executors.pop(share).shutdown()
                    yield job, "its process was killed, by a user or for want of memory"

    def _begin(self, share: int, job: Job) -> None:
        if share not in self._executors:
            # By the first start, it would let signals through; and it must outlive a terminal.
            hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
            resource_tracker.ensure_running()
            signal.signal(signal.SIGHUP, hangup)
            # Fresh processes: what JAX has started does not survive a fork.
            spawn = multiprocessing.get_context("spawn")
            self._executors[share] = ProcessPoolExecutor(1, spawn, _prepare, (self._shares[share],))
        # Signals wait for the process to be ready for them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self._under_way[self._executors[share].submit(_attempt, job)] = share, job
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def close(self) -> None:
        """Stops what is under way, once it is saved; what is stopped again meanwhile ends at once."""
        for process in multiprocessing.active_children():
            process.terminate()
        try:
            concurrent.futures.wait(self._under_way)
        except Stopped:
            for process in multiprocessing.active_children():
                process.kill()
        for executor in self._executors.values():
            executor.shutdown()


def _prepare(share: list[int]) -> None:
    """Begins a process of the pool: it ends when told to, or when nobody is there to tell it."""
    os.setpgrp()  # a terminal's signals do not come here
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share)  # before XLA counts them
    logging.set_verbosity(logging.ERROR)  # of orbax, which has much to report
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    when_the_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM))


def _attempt(job: Job) -> float | str:
    try:
        with stoppable():
            return attempt(job)
    except Stopped:
        if not (parent := multiprocessing.parent_process()) or not parent.is_alive():
            os._exit(1)  # nobody takes the outcome, for which the pool would wait
        raise


class LatestLine(io.TextIOBase):
    """Passes on a line of what a run prints now and then: how far it is, and the time left of a long one."""

    def __init__(self, name: str, seconds: float = 20.0):
        self._name, self._seconds, self._out = name, seconds, sys.stdout
        self._last, self._line = time.monotonic(), ""

    def write(self, text: str) -> int:
        """Takes text; of whole lines the last one is passed on, if the last such time is long enough ago."""
        *lines, self._line = (self._line + text).split("\n")
        if lines and lines[-1] and time.monotonic() - self._last >= self._seconds:
            print(f"    {self._name}: {lines[-1]}", file=self._out, flush=True)
            self._last = time.monotonic()
        return len(text)


def in_a_line(error: Exception) -> str:
    """Returns the reason why a run failed, in one line."""
    return str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {first_line(error)}"


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Turns signals into `Stopped` wherever the trainer does not handle them itself.

    While a run trains, the trainer notes the signal, saves and returns. Anywhere else nothing is
    under way that could be left half done, since files are written whole.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:  # which comes twice when a terminal is closed: see `training.loop`
            signal.signal(number, signal.SIG_IGN)
        raise Stopped

    # Ignored signals, as SIGHUP by nohup, stay so.
    heeded = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
