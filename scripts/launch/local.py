"""Processes on this machine, with CPU devices each: to try out what a cluster will do."""

import argparse
import socket
import sys
import time
from pathlib import Path

from experiments.core.record.workdir import Workdir
from scripts.arguments import at_least
from scripts.launch.process import Console, together
from scripts.launch.scheduler import label
from scripts.launch.training import Training

_LEFT_SECONDS = 120.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this platform."""
    parser.add_argument("--processes", type=at_least(1), default=1, metavar="N", help="of every run (1)")
    parser.add_argument(
        "--devices", type=at_least(1), metavar="M", help="CPU devices of every process; left out: what JAX finds"
    )
    parser.add_argument("--port", type=int, help="of the coordinator, plus the slot; left out: a free one")


class Local:
    """See `scheduler.Platform`."""

    retries = 0  # a program that fails here will fail again
    leaves_running = False
    num_devices: int | None = 0
    num_processes = 1

    def __init__(self, options: argparse.Namespace, console: Console):
        self._options, self._console = options, console

    def prepare(self) -> None:
        """Nothing is needed."""

    def release(self, slot: int, *, keep: bool) -> bool:
        """Nothing is left."""
        return True

    def train(self, training: Training, slot: int, logs: Path) -> None:
        """Starts all processes, and stops all when one fails."""
        self._wait_until_free(training)
        processes = self._options.processes
        port = self._options.port + slot if self._options.port else _free_port()
        streams = {}
        for process in range(processes):
            name = f"process {process}"
            prefix = f"[{label(training)}] " if processes == 1 else f"[{label(training)} {process}] "
            variables = self._variables(process, f"127.0.0.1:{port}")
            log = logs / f"process-{process}.log"
            streams[name] = self._console.stream(training.command(sys.executable), prefix, log, variables)
        together(self._console, streams)

    def _wait_until_free(self, training: Training) -> None:
        """Waits for processes that a launcher which was killed has left; they end at the next line they print."""
        workdir, deadline = Workdir(training.workdir), time.monotonic() + _LEFT_SECONDS
        if not self._console.dry_run and workdir.in_use():
            self._console.say(f"{label(training)}: waiting for a process of an earlier launcher to end")
            while workdir.in_use() and time.monotonic() < deadline:
                self._console.wait(0.5)

    def _variables(self, process: int, coordinator: str) -> dict[str, str]:
        variables = {}
        if self._options.processes > 1:
            variables["JAX_COORDINATOR_ADDRESS"] = coordinator
            variables["JAX_NUM_PROCESSES"] = str(self._options.processes)
            variables["JAX_PROCESS_ID"] = str(process)
        if self._options.devices:
            variables |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(self._options.devices)}
        return variables


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
