"""Workloads on a cluster of Google Kubernetes Engine, by xpk, which queues them and restarts them after preemption."""

import argparse
import shlex
import tempfile
from pathlib import Path

from scripts.arguments import FLAG, NAME, ZONE, at_least
from scripts.launch import code, state
from scripts.launch.process import Console, Failed, error_line
from scripts.launch.scheduler import Platform
from scripts.launch.training import Training

_NOT_COMPLETED = 125  # exit status of xpk: the workload has ended in another way


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this platform."""
    add = parser.add_argument
    add("--cluster", type=NAME, required=True, help="made by `xpk cluster create`")
    add("--zone", type=ZONE, required=True)
    add("--type", required=True, help="as xpk's --tpu-type, for example v6e-16")
    add("--slices", type=at_least(1), default=1, help="joined by the network of the data centre (1)")
    create_help = "for xpk's create, for example --max-restarts=5; repeatable"
    add("--create_flag", type=FLAG, action="append", default=[], metavar="FLAG", help=create_help)
    code.add_options(parser)


class Gke(Platform):
    """Trains in a workload per run."""

    retries = 0  # the cluster restarts what was preempted or has crashed; what fails otherwise will fail again
    submits = True
    far = True

    def __init__(self, options: argparse.Namespace, console: Console):
        super().__init__(options, console)
        self.data = options.data
        self.type = options.type if options.slices == 1 else f"{options.slices}x{options.type}"
        self._place = [f"--cluster={options.cluster}", f"--zone={options.zone}"]
        self._code = code.Code.of(options)
        self._directory = Path(tempfile.gettempdir()) / f"sparse-topk-{self._code.commit[:12]}"

    def prepare(self) -> None:
        """Unpacks the code: xpk makes an image of a directory."""
        self._code.pack(self._console)
        self._console.do(["mkdir", "-p", str(self._directory)])
        self._console.do(["tar", "-xzf", str(self._code.archive), "-C", str(self._directory)])

    def train(self, training: Training, slot: int) -> None:
        """Waits for the workload that an earlier launcher has left, or creates one, and waits for that."""
        options, console = self._options, self._console
        name = f"{training.experiment.replace('_', '-').lower()[:19]}-{training.digest}"  # of 28 characters, at most
        workload = [f"--workload={name}", *self._place]
        logs = f"kubectl logs --selector=xpk.google.com/workload={name} --tail=500 --max-log-requests=100"
        if not console.dry_run and self._wait(name) is not None:
            if state.read(training).word == state.DONE:
                return
            console.do(["xpk", "workload", "delete", *workload])
        create = [
            *("xpk", "workload", "create", *workload),
            *(f"--tpu-type={options.type}", f"--num-slices={options.slices}", "--max-restarts=20"),
            # An image with bash and curl, for the code to be put into.
            *("--base-docker-image=python:3.13", f"--script-dir={self._directory}"),
            "--termination-grace-period-seconds=120",  # for a run that is preempted to save
            *options.create_flag,
            f"--command={self.command(training)}",
        ]
        console.do(create)
        if not console.dry_run:
            console.say(f"{training.label}: workload {name}; to follow it: {logs} --follow")
        if status := self._wait(name):
            raise Failed(f"workload {name} has failed: {logs}", status)

    def command(self, training: Training) -> str:
        """The shell command of a container, as it may stand in a manifest."""
        command = f"{self._code.install('.')} && exec {shlex.join(training.command('.venv/bin/python'))}"
        return command.replace("$", "$$")  # Kubernetes replaces $(NAME), and $$ by $

    def _wait(self, name: str) -> int | None:
        """Waits for a workload to end; returns 0 if it has completed, and None if there is none."""
        done = self._console.ask(["xpk", "workload", "list", *self._place, f"--wait-for-job-completion={name}"])
        said = done.stdout + done.stderr
        if done.returncode == 1 and "does not exist" in said:
            return None
        if done.returncode not in (0, _NOT_COMPLETED):
            raise Failed(f"xpk: {error_line(said)}", done.returncode)
        return done.returncode
