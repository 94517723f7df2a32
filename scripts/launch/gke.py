"""Workloads on a cluster of Google Kubernetes Engine, by xpk, which queues them and restarts them after preemption."""

import argparse
import re
import shlex
import tempfile
from pathlib import Path

from experiments.core.errors import UsageError
from scripts.arguments import at_least
from scripts.launch import state
from scripts.launch.check import tpu_devices, tpu_processes
from scripts.launch.code import Code
from scripts.launch.process import USAGE, Console, Failed, Stopped, error_line
from scripts.launch.scheduler import label
from scripts.launch.training import Training

# What xpk takes for the name of a cluster or a workload: the pattern, and at most so many characters.
_NAME, _LONGEST_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?"), 40
_NOT_COMPLETED, _WAITED_TOO_LONG = 125, 124  # xpk's exit statuses: the workload's end, and a week of waiting
_BY_SIGNAL = 128  # from here on exit statuses of containers are those of signals, which are what the others get


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this platform."""
    parser.add_argument("--cluster", required=True, help="made by `xpk cluster create`")
    parser.add_argument("--type", required=True, help="as xpk's --tpu-type, for example v6e-16")
    parser.add_argument(
        "--slices", type=at_least(1), default=1, help="of the type, joined by the network of the data centre (1)"
    )
    parser.add_argument("--zone", required=True)
    parser.add_argument("--project", help="left out: gcloud's own")
    parser.add_argument("--restarts", type=at_least(0), default=20, help="by the cluster, after preemption (20)")
    parser.add_argument("--base_image", default="python:3.13", help="with bash and curl, for the code to be put into")
    parser.add_argument(
        "--create_flag", action="append", default=[], metavar="FLAG", help="for xpk's create; repeatable"
    )
    parser.add_argument(
        "--prepare", metavar="COMMAND", help="shell command for every worker, before training, at each attempt"
    )
    parser.add_argument("--commit", help="to send out; left out: what is checked out, if nothing is changed")


class Gke:
    """See `scheduler.Platform`."""

    retries = 3
    leaves_running = True

    def __init__(self, options: argparse.Namespace, console: Console):
        self._options, self._console = options, console
        if not _NAME.fullmatch(options.cluster) or len(options.cluster) > _LONGEST_NAME:
            raise UsageError(
                f"--cluster={options.cluster} is not allowed: it must be of at most {_LONGEST_NAME} small letters, "
                "digits and dashes, a letter first and no dash last, as xpk has it"
            )
        devices = tpu_devices(options.type)
        self.num_devices = options.slices * devices if devices else None
        self.num_processes = options.slices * tpu_processes(options.type) if devices else 1
        self._code = Code.of(options.commit, options.config)
        self._directory = Path(tempfile.gettempdir()) / f"sparse-topk-{self._code.commit[:12]}"

    def prepare(self) -> None:
        """Unpacks the code: xpk makes an image of a directory."""
        self._code.pack(self._console)
        self._console.run(["mkdir", "-p", str(self._directory)])
        self._console.run(["tar", "-xzf", str(self._code.archive), "-C", str(self._directory)])

    def release(self, slot: int, *, keep: bool) -> bool:
        """Workloads end by themselves, and the cluster deletes them."""
        return True

    def train(self, training: Training, slot: int, logs: Path) -> None:
        """Waits for the workload that an earlier launcher has left, or creates one, and waits for that."""
        record = {} if self._console.dry_run else state.read_record(training)
        attempt = record.get("attempt", 0)
        if record.get("submitted") and self._wait(training, _name(training, attempt)):
            return
        if self._console.stopping.is_set():
            raise Stopped
        if record:
            attempt += 1 if "attempt" in record else 0
            # Before it is: whoever comes after a launcher that was killed here must find the workload, if there is one.
            state.record(training, state.RUNNING, attempt=attempt, submitted=True)
        name = _name(training, attempt)
        try:
            self._create(training, name)
        except Stopped as stopped:  # whether xpk had got so far is not known: the next launcher looks for it first
            raise Stopped(goes_on=True) from stopped
        if not self._wait(training, name):
            raise Failed(f"{label(training)}: workload {name} is not there")

    def _create(self, training: Training, name: str) -> None:
        options = self._options
        done = self._console.ask(
            [
                *("xpk", "workload", "create", f"--cluster={options.cluster}", f"--workload={name}"),
                *(f"--tpu-type={options.type}", f"--num-slices={options.slices}", f"--max-restarts={options.restarts}"),
                *(f"--base-docker-image={options.base_image}", f"--script-dir={self._directory}"),
                # A run that is preempted has this long to save.
                "--termination-grace-period-seconds=120",
                *options.create_flag,
                *self._place(),
                f"--command={self.command(training)}",
            ]
        )
        if done.returncode:
            # 2 is how it says that an option is none.
            again = done.returncode != USAGE
            raise Failed(f"xpk: {error_line(done.stderr + done.stdout)}", done.returncode, again=again)
        if not self._console.dry_run:
            logs = f"kubectl logs {_selector(name)} --prefix --follow --max-log-requests=100"
            self._console.say(f"{label(training)}: workload {name}; what it says: {logs}")

    def command(self, training: Training) -> str:
        """What the shell of a container is to run, as it may stand in a manifest.

        Raises:
          Failed: it has a character that a manifest's line cannot hold; other runs may have none.
        """
        parts = [self._code.install(".", "tpu")]
        parts += [f"({self._options.prepare})"] if self._options.prepare else []
        command = " && ".join([*parts, "exec " + shlex.join(training.command(".venv/bin/python"))])
        if not command.isprintable():
            reason = f"{training.overrides} has a line break or the like, which xpk does not carry"
            raise Failed(reason, USAGE, again=False)
        # Kubernetes replaces $(NAME), and $$ by $.
        return command.replace("$", "$$")

    def _wait(self, training: Training, name: str) -> bool:
        """Waits for a workload to end; whether there is one.

        Raises:
          Failed: it has not completed.
        """
        console, cluster = self._console, f"--cluster={self._options.cluster}"
        wait = ["xpk", "workload", "list", cluster, f"--wait-for-job-completion={name}", *self._place()]
        try:
            while (done := console.ask(wait)).returncode == _WAITED_TOO_LONG:
                console.say(f"{label(training)}: workload {name} goes on, and is waited for")
        except Stopped as stopped:
            raise Stopped(goes_on=True) from stopped
        if done.returncode == 1 and "does not exist" in done.stdout + done.stderr:
            return False
        if done.returncode not in (0, _NOT_COMPLETED):  # not of the workload, which goes on
            raise Failed(f"xpk: {error_line(done.stdout + done.stderr)}", done.returncode)
        if not console.dry_run:
            state.record(training, state.RUNNING, submitted=False)
        if done.returncode:
            said = console.ask(["kubectl", "logs", _selector(name), "--tail=50"])
            status = self._exit_status(name) or done.returncode
            reason = f"workload {name}: {error_line(said.stdout or done.stdout)}"
            raise Failed(reason, status, again=status != USAGE)
        return True

    def _exit_status(self, name: str) -> int:
        """The worst of the containers of a workload that failed by themselves, else of all; 0 if it is not known."""
        of_all = "jsonpath={.items[*].status.containerStatuses[*].state.terminated.exitCode}"
        said = self._console.ask(["kubectl", "get", "pods", _selector(name), f"--output={of_all}"])
        statuses = [int(word) for word in said.stdout.split() if word.isdigit()]
        return max([status for status in statuses if status < _BY_SIGNAL], default=0) or max(statuses, default=0)

    def _place(self) -> list[str]:
        project = [f"--project={self._options.project}"] if self._options.project else []
        return [f"--zone={self._options.zone}", *project]


def _selector(name: str) -> str:
    """An option of kubectl's: of the pods of a workload."""
    return f"--selector=xpk.google.com/workload={name}"


def _name(training: Training, attempt: int) -> str:
    """Of a workload: at most 28 small letters, digits and dashes, and never the same twice for a workdir."""
    word = re.search(r"[a-z][a-z0-9]*", training.experiment.lower())
    return f"{word[0][:16] if word else 'run'}-{training.digest}-{attempt}"
