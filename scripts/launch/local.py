"""Processes on this machine, with CPU devices each: to try out what a cluster will do."""

import argparse
import socket
import sys

from scripts.arguments import at_least
from scripts.launch.process import Console
from scripts.launch.scheduler import Platform
from scripts.launch.training import Training


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this platform."""
    parser.add_argument("--processes", type=at_least(1), default=1, metavar="N", help="of every run (1)")
    devices_help = "CPU devices of every process; left out: what JAX finds"
    parser.add_argument("--devices", type=at_least(1), metavar="M", help=devices_help)


class Local(Platform):
    """Trains in processes of this machine."""

    retries = 0  # a program that fails here will fail again

    def __init__(self, options: argparse.Namespace, console: Console):
        super().__init__(options, console)
        self.num_processes = options.processes
        self.num_devices = options.processes * options.devices if options.devices else None

    def train(self, training: Training, slot: int) -> None:
        """Starts all processes, and waits for them."""
        coordinator, processes, commands = f"127.0.0.1:{_free_port()}", self._options.processes, {}
        for process in range(processes):
            variables = []
            if processes > 1:
                variables += [f"JAX_COORDINATOR_ADDRESS={coordinator}"]
                variables += [f"JAX_NUM_PROCESSES={processes}", f"JAX_PROCESS_ID={process}"]
            if self._options.devices:
                variables += ["JAX_PLATFORMS=cpu", f"JAX_NUM_CPU_DEVICES={self._options.devices}"]
            commands[f"process-{process}"] = ["env", *variables, *training.command(sys.executable)]
        self._console.run(commands, training.logs)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
