"""Trains runs of a suite: in this process, or side by side in others that have a share of the processors each.

Small networks leave most of a machine idle: a step is over before its work could be divided. Runs side by side do not.
"""

import contextlib
import importlib
import io
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
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
_PATIENCE = 20.0  # seconds between two lines of a run


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
    """Trains a run, and prints now and then how far it is; the seconds that it took, or in a line why it failed.

    Raises `Stopped` at SIGTERM or SIGINT, once what was trained is saved.
    """
    recipe = importlib.import_module(f"experiments.{job.experiment}.experiment").RECIPE
    start, workdir = time.monotonic(), Workdir(job.path)
    try:
        with contextlib.redirect_stdout(_LatestLine(job.name)):
            asked_to_stop = train.start(recipe, job.config, workdir, job.command)
        if asked_to_stop or not workdir.is_done():
            raise Stopped
        return time.monotonic() - start
    except Exception as error:
        return in_a_line(error)
    finally:
        jax.clear_caches()  # no two runs share a compiled function, and dozens of them fill the memory


def attempts(jobs: Sequence[Job], processes: int) -> Generator[tuple[Job, float | str]]:
    """Trains runs that wait for none of each other; yields the outcome of each, as `attempt` has it, at its end.

    Each of several threads has a process of its own with a share of the processors, so that a process that dies costs
    its run alone. When the iterator is closed, what is under way is stopped and saved.
    """
    available, core_sets, local = processors(), queue.SimpleQueue[list[int]](), threading.local()
    for number in range(processes):
        core_sets.put(available[number::processes])
    spawn = multiprocessing.get_context("spawn")  # what JAX has started does not survive a fork
    stopping, lock = threading.Event(), threading.Lock()

    def init_thread() -> None:
        # A process starts with the mask of its thread: signals wait until it is ready for them.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        local.cores, local.executor = core_sets.get(), None

    def run_job(job: Job) -> float | str:
        local.executor = local.executor or ProcessPoolExecutor(1, spawn, _prepare, (local.cores,))
        try:
            with lock:  # no process starts once all are told to stop
                if stopping.is_set():
                    return "stopped"
                future = local.executor.submit(_attempt, job)
            return future.result()
        except BrokenProcessPool:
            local.executor = None
            return "its process was killed, by a user or for want of memory"

    resource_tracker.ensure_running()  # started by a thread, it would let signals through
    threads = ThreadPoolExecutor(processes, initializer=init_thread)
    under_way = {threads.submit(run_job, job): job for job in jobs}
    try:
        for future in as_completed(under_way):
            yield under_way[future], future.result()
    finally:
        with lock:
            stopping.set()
        children = multiprocessing.active_children()
        for process in children:
            process.terminate()
        for process in children:
            process.join()
        threads.shutdown()


def _prepare(cores: list[int]) -> None:
    """Begins a process: it ends when told to, or when nobody is there to tell it."""
    os.setpgrp()  # a terminal's signals do not come here
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)  # before XLA counts them
    logging.set_verbosity(logging.ERROR)  # of orbax, which has much to report
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    when_the_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM))


def _attempt(job: Job) -> float | str:
    try:
        return attempt(job)
    except Stopped:
        os._exit(1)  # the suite, if it is still there, takes it for one that was killed


class _LatestLine(io.TextIOBase):
    """Passes on a line of what a run prints now and then: how far it is, and the time left of a long one."""

    def __init__(self, name: str):
        self._name, self._out, self._last = name, sys.stdout, time.monotonic()

    def write(self, text: str) -> int:
        if text.strip() and time.monotonic() - self._last >= _PATIENCE:
            print(f"    {self._name}: {text.strip()}", file=self._out, flush=True)
            self._last = time.monotonic()
        return len(text)


def in_a_line(error: Exception) -> str:
    """Returns the reason why a run failed, in one line."""
    return str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {first_line(error)}"


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Turns signals into `Stopped` wherever the trainer does not handle them itself; files are written whole."""

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:  # which comes twice when a terminal is closed: see `training.guard`
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
