"""TPU VMs of Google Cloud, by gcloud: created at once (`tpu-vm`) or when their turn comes (`queued-resource`).

Every run has a TPU to itself. It is created, or taken as it is if it is there with the type asked for; the code is
copied to all its workers and installed; then every worker runs the training command over a connection of its own, whose
lines are prefixed with the number of the worker. If one of them fails the others are stopped, and all start again.
"""

import argparse
import json
import re
import shlex
import subprocess
import threading
from pathlib import Path
from typing import Any

from experiments.core.errors import UsageError
from scripts.arguments import at_least
from scripts.launch.check import tpu_devices, tpu_processes
from scripts.launch.code import Code
from scripts.launch.process import USAGE, Console, Failed, Unusable, error_line, together
from scripts.launch.scheduler import label
from scripts.launch.training import Training

# Of https://cloud.google.com/tpu/docs/runtimes, for JAX, by how the name of the type begins.
_RUNTIMES = {
    "v2-": "tpu-ubuntu2204-base",
    "v3-": "tpu-ubuntu2204-base",
    "v4-": "tpu-ubuntu2204-base",
    "v5litepod-": "v2-alpha-tpuv5-lite",
    "v5p-": "v2-alpha-tpuv5",
    "v6e-": "v2-alpha-tpuv6e",
}
# What gcloud says where it is not worth asking again later; all else, such as a network that is gone, may pass.
_MISTAKE = re.compile(
    r"PERMISSION_DENIED|INVALID_ARGUMENT|UNAUTHENTICATED|UNIMPLEMENTED|NOT_FOUND"
    r"|invalid_grant|reauthentication|active account|required property",
    re.I,
)
_ABSENT = re.compile(r"NOT_FOUND|not found|\b404\b", re.I)
_NEVER = "FAILED"  # of a queued resource: its turn will not come
_READY = {"tpu-vm": "READY", "queued-resources": "ACTIVE"}
# Gone for good, or never there; what is left of it takes up the name.
_LOST = {"tpu-vm": ("PREEMPTED", "TERMINATED"), "queued-resources": ("SUSPENDED", _NEVER)}
_STOP_SECONDS = 300.0
# A connection over which nothing comes for hours is kept, and one that is gone is noticed, in three minutes.
_KEEP_ALIVE = ("-oServerAliveInterval=30", "-oServerAliveCountMax=6")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of these platforms."""
    parser.add_argument("--name", required=True, help="of the TPU; with --jobs=J above 1, NAME-0 to NAME-(J-1)")
    parser.add_argument("--zone", required=True)
    parser.add_argument("--type", required=True, help="as gcloud's --accelerator-type, for example v5litepod-16")
    parser.add_argument("--project", help="left out: gcloud's own")
    parser.add_argument("--runtime_version", help="left out: the one for JAX on this type")
    parser.add_argument("--spot", action="store_true", help="cheaper, and may be taken away at any time")
    parser.add_argument("--workers", type=at_least(1), help="how many the TPU has; only dry runs and checks ask")
    parser.add_argument("--internal_ip", action="store_true", help="connect to internal addresses")
    parser.add_argument(
        "--create_flag", action="append", default=[], metavar="FLAG", help="for gcloud's create; repeatable"
    )
    parser.add_argument(
        "--prepare",
        metavar="COMMAND",
        help="shell command for every worker, before training; run again at each attempt, so it must be repeatable",
    )
    parser.add_argument("--commit", help="to send out; left out: what is checked out, if nothing is changed")
    parser.add_argument(
        "--delete",
        choices=("never", "preempted", "always"),
        default="never",
        help="a TPU that was preempted, or a queued resource that has failed, to create it again; and (always) every "
        "TPU of these names and the type, once no run is left for it",
    )
    parser.add_argument("--poll_seconds", type=float, default=20.0, help="between two looks at a TPU to come (20)")


class Tpu:
    """See `scheduler.Platform`."""

    retries = 10
    leaves_running = False

    def __init__(self, options: argparse.Namespace, console: Console, *, queued: bool):
        runtimes = [version for start, version in _RUNTIMES.items() if options.type.startswith(start)]
        if not runtimes and not options.runtime_version:
            raise UsageError(f"--type={options.type}: which --runtime_version it takes is not known here")
        self._options, self._console = options, console
        self.num_devices = tpu_devices(options.type)
        self.num_processes = options.workers or (tpu_processes(options.type) if self.num_devices else 1)
        self._kind = "queued-resources" if queued else "tpu-vm"
        self._version = options.runtime_version or runtimes[0]
        self._code = Code.of(options.commit, options.config)
        self._workers: dict[int, int] = {}  # of TPUs that are ready to train, by slot

    def prepare(self) -> None:
        """Packs the code."""
        self._code.pack(self._console)

    def release(self, slot: int, *, keep: bool) -> bool:
        """Deletes the TPU of `slot`, or says how to; one of another type, or stopped, is somebody else's affair."""
        name, console = self._name(slot), self._console
        delete = self._options.delete == "always" and not keep
        said = "is still there, and paid for"
        try:
            found = self._describe(self._kind, name, last=True)
            if not console.dry_run:
                if found is None or _type(found) not in (None, self._options.type) or _state(found) == "STOPPED":
                    return True
                if delete:
                    console.say(f"deleting {name}")
            if delete:
                self._delete(name, last=True)
                return True
        except Exception as error:  # whatever it is: the user must hear of the TPU
            said = f"may still be there, and paid for ({error})"
        if not console.dry_run:
            console.say(f"{name} {said}; to delete it: {shlex.join(self._deletion(name))}")
        return not delete

    def train(self, training: Training, slot: int, logs: Path) -> None:
        """Trains on all workers of the TPU of `slot`."""
        name = self._name(slot)
        if slot not in self._workers:
            workers = self._find_or_create(name)
            self._install(name, workers)
            self._workers[slot] = workers
        workers = self._workers.pop(slot)
        remote = remote_command(self._code.directory, training)
        streams = {
            f"worker {worker}": self._console.stream(
                self._ssh(name, worker, remote), f"[{label(training)} {worker}] ", logs / f"worker-{worker}.log"
            )
            for worker in range(workers)
        }
        together(self._console, streams, halt=lambda: self._halt(name, workers))
        self._workers[slot] = workers  # only now is it known to be all right

    def _find_or_create(self, name: str) -> int:
        """The number of workers of the TPU `name`, once it is ready."""
        console, waiting = self._console, False
        while True:
            found = self._describe(self._kind, name)
            if found is None:
                console.say(f"# creating {name}" if console.dry_run else f"creating {name}")
                self._create(name)
                found = self._describe(self._kind, name)
                if console.dry_run:
                    if self._kind == "queued-resources":
                        self._describe("tpu-vm", name)
                    return self._options.workers or 1
            if found is not None:
                self._check_type(name, found)
                state = _state(found)
                node = found if self._kind == "tpu-vm" else None
                if state == _READY[self._kind] and (node := node or self._describe("tpu-vm", name)):
                    self._check_type(name, node)
                    if _state(node) == "READY":
                        return _num_workers(node)
                if state in _LOST[self._kind]:
                    self._make_way(name, found)
                    continue
                if state == "STOPPED":
                    start = shlex.join(self._gcloud("tpu-vm", "start", name))
                    raise Unusable(f"{name} is stopped; to start it: {start}")
                if not waiting:
                    console.say(f"waiting for {name}, which is {state}")
                waiting = True
            console.wait(self._options.poll_seconds)

    def _name(self, slot: int) -> str:
        return self._options.name if self._options.jobs == 1 else f"{self._options.name}-{slot}"

    def _describe(self, kind: str, name: str, *, last: bool = False) -> dict[str, Any] | None:
        """What gcloud knows of it; None if there is no such thing."""
        done = self._console.ask(self._gcloud(kind, "describe", name, "--format=json"), last=last)
        if done.returncode == 0:
            return json.loads(done.stdout) if done.stdout else None
        if _ABSENT.search(done.stderr):
            return None
        raise _failed("gcloud", done)

    def _create(self, name: str) -> None:
        options = self._options
        version, node = ("version", []) if self._kind == "tpu-vm" else ("runtime-version", [f"--node-id={name}"])
        done = self._console.ask(
            [
                *self._gcloud(self._kind, "create", name, *node, f"--accelerator-type={options.type}"),
                f"--{version}={self._version}",
                *(["--spot"] if options.spot else []),
                *options.create_flag,
                "--quiet",
            ]
        )
        if done.returncode:
            raise _failed(f"{name} could not be created", done)

    def _check_type(self, name: str, found: dict[str, Any]) -> None:
        if _type(found) not in (None, self._options.type):
            raise Unusable(
                f"{name} is there already, and is a {_type(found)}: --type={self._options.type} needs another --name"
            )

    def _make_way(self, name: str, found: dict[str, Any]) -> None:
        """Deletes what is lost; fails where it was never there, as it may be no more when it is asked for again."""
        state, never = _state(found), _state(found) == _NEVER
        what = f"{name} is {state}{f' ({_error(found)})' if never else ''}"
        if self._options.delete == "never":
            raise Unusable(
                f"{what}, and what is left of it takes up its name: with --delete=preempted it is deleted and created "
                "again",
                status=1,
            )
        self._console.say(f"{name} is {state}: deleting it, to create it again")
        self._delete(name)
        if never:
            raise Failed(what, again=not _MISTAKE.search(what))

    def _delete(self, name: str, *, last: bool = False) -> None:
        done = self._console.ask(self._deletion(name), last=last)
        if done.returncode and not _ABSENT.search(done.stderr):
            raise _failed(f"{name} could not be deleted", done)

    def _deletion(self, name: str) -> list[str]:
        # Of a queued resource, with the TPU that it has led to.
        force = [] if self._kind == "tpu-vm" else ["--force"]
        return self._gcloud(self._kind, "delete", name, *force, "--quiet")

    def _install(self, name: str, workers: int) -> None:
        """Copies the code to all workers and makes the environment, on all at a time."""
        code, console = self._code, self._console
        archive, directory = code.archive.name, code.directory
        parts = [f"mkdir -p {directory}", f"tar -xzf {archive} -C {directory}", code.install(directory, "tpu")]
        parts += [f"({self._options.prepare})"] if self._options.prepare else []
        if not console.dry_run:
            console.say(f"installing commit {code.commit[:12]} on {workers} workers of {name}, minutes the first time")
        for step in ("scp", "ssh"):
            streams = {}
            for worker in range(workers):
                command = (
                    self._gcloud("tpu-vm", "scp", str(code.archive), f"{name}:{archive}", *self._to(worker, step))
                    if step == "scp"
                    else self._ssh(name, worker, " && ".join(parts))
                )
                streams[f"worker {worker}"] = console.stream(command, f"[{name} {worker}] ", None)
            try:
                together(console, streams)
            except Failed as error:  # with status 2, which is no config's mistake here but, for example, tar's failure
                raise Failed(str(error), error.status) from error

    def _halt(self, name: str, workers: int) -> None:
        """Lets all workers save and end, at the same time, as they have to agree on the step."""
        self._console.say(f"asking the workers of {name} to save and stop")
        command = f"cd {self._code.directory} && .venv/bin/python -m scripts.launch.worker --stop"
        threads = [
            threading.Thread(
                target=self._console.ask,
                args=(self._ssh(name, worker, command),),
                kwargs={"last": True, "timeout": _STOP_SECONDS},
            )
            for worker in range(workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _ssh(self, name: str, worker: int, command: str) -> list[str]:
        return self._gcloud("tpu-vm", "ssh", name, *self._to(worker, "ssh"), f"--command={command}")

    def _to(self, worker: int, program: str) -> list[str]:
        address = ["--internal-ip"] if self._options.internal_ip else []
        return [f"--worker={worker}", *address, *(f"--{program}-flag={flag}" for flag in _KEEP_ALIVE)]

    def _gcloud(self, kind: str, verb: str, *arguments: str) -> list[str]:
        project = [f"--project={self._options.project}"] if self._options.project else []
        return ["gcloud", "compute", "tpus", kind, verb, *arguments, f"--zone={self._options.zone}", *project]


def remote_command(directory: str, training: Training) -> str:
    """What the shell of a worker is to run."""
    command = shlex.join(training.command(".venv/bin/python"))
    return f"cd {directory} && exec .venv/bin/python -m scripts.launch.worker -- {command}"


def _failed(what: str, done: subprocess.CompletedProcess[str]) -> Failed:
    again = done.returncode != USAGE and not _MISTAKE.search(done.stderr)
    return Failed(f"{what}: {error_line(done.stderr)}", done.returncode, again=again)


def _type(found: dict[str, Any]) -> str | None:
    """Of a TPU, or of a queued resource, where it is nested; None if it is not said."""
    specs = found.get("tpu", {}).get("nodeSpec", [])
    return (specs[0]["node"].get("acceleratorType") if specs else found.get("acceleratorType")) or None


def _state(found: dict[str, Any]) -> str:
    """Of a TPU, or of a queued resource, where it is nested."""
    state = found.get("state", "UNKNOWN")
    return state.get("state", "UNKNOWN") if isinstance(state, dict) else state


def _error(found: dict[str, Any]) -> str:
    """Why a queued resource has failed."""
    error = found["state"].get("failedData", {}).get("error", {})
    return " ".join(str(error.get("message") or error or "it does not say why").split())


def _num_workers(node: dict[str, Any]) -> int:
    """A worker has an address in every network."""
    return len(node["networkEndpoints"]) // max(1, len(node.get("networkConfigs", [])))
