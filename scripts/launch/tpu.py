"""TPU VMs of Google Cloud, by gcloud: as queued resources, which come when their turn comes, or at once.

Every run has a TPU to itself. It is asked for, or taken as it is if it is there with the type asked for; the code is
copied to all its workers and installed; then all workers run the training command, each over a connection of gcloud's.
If one of them fails, JAX ends the others within two minutes, and all start again.
"""

import argparse
import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

from experiments.core.errors import UsageError
from scripts.launch import code
from scripts.launch.process import USAGE, Console, Failed, Unusable, error_line
from scripts.launch.scheduler import Platform
from scripts.launch.training import Training

# The software version for JAX, of https://docs.cloud.google.com/tpu/docs/runtimes.
_RUNTIMES = {
    **{"v4": "tpu-ubuntu2204-base", "v5litepod": "v2-alpha-tpuv5-lite"},
    **{"v5p": "v2-alpha-tpuv5", "v6e": "v2-alpha-tpuv6e"},
}
# Answers of gcloud after which another try is useless; other failures, such as a lost network, may pass.
_MISTAKE = re.compile(
    r"PERMISSION_DENIED|INVALID_ARGUMENT|UNAUTHENTICATED|UNIMPLEMENTED|NOT_FOUND"
    r"|invalid_grant|reauthentication|active account|required property",
    re.I,
)
_ABSENT = re.compile(r"NOT_FOUND|not found|\b404\b", re.I)
# Taken away, stopped, and never granted; what is left of it takes up the name.
_LOST = ("SUSPENDED", "FAILED", "PREEMPTED", "TERMINATED")
POLL_SECONDS = 20.0  # between two looks at a TPU to come
# A connection over which nothing comes for hours is kept, and one that is gone is noticed, in three minutes.
_KEEP_ALIVE = ("-oServerAliveInterval=30", "-oServerAliveCountMax=6")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this platform."""
    add = parser.add_argument
    add("--name", required=True, help="of the TPU; with --jobs=J above 1, NAME-0 to NAME-(J-1)")
    add("--zone", required=True)
    add("--type", required=True, help="as gcloud's --accelerator-type, for example v5litepod-16")
    create_help = "for gcloud's create, for example --spot; repeatable"
    add("--create_flag", action="append", default=[], metavar="FLAG", help=create_help)
    add("--internal_ip", action="store_true", help="connect to internal addresses")
    delete_help = (
        "delete a TPU that was taken away or not granted, to ask for it again, and each of these names and the type "
        "once no run is left for it"
    )
    add("--delete", action="store_true", help=delete_help)
    code.add_options(parser)


class Tpu(Platform):
    """Trains on a TPU per slot, a queued resource."""

    retries = 10
    kind = "queued-resources"  # what gcloud calls it

    def __init__(self, options: argparse.Namespace, console: Console):
        super().__init__(options, console)
        self.type = options.type
        if (generation := options.type.partition("-")[0]) not in _RUNTIMES:
            raise UsageError(f"--type={options.type} is not allowed: it must be of {', '.join(_RUNTIMES)}")
        self._runtime = _RUNTIMES[generation]
        self._code = code.Code.of(options)
        self._ready: set[int] = set()  # slots whose TPU has the code and has not failed since

    def prepare(self) -> None:
        """Packs the code."""
        self._code.pack(self._console)

    def release(self, slot: int, *, keep: bool) -> bool:
        """Deletes the TPU of `slot`, or says how to; one of another type is somebody else's affair."""
        name, console, delete = self._name(slot), self._console, self._options.delete and not keep
        said = "is still there, and paid for"
        try:
            found = self._describe(name, last=True)
            if not console.dry_run and (found is None or _type(found) not in (None, self._options.type)):
                return True
            if delete:
                self._delete(name, last=True)
                return True
        except Exception as error:  # whatever it is: the user must hear of the TPU
            said = f"may still be there, and paid for ({error})"
        if not console.dry_run:
            console.say(f"{name} {said}; to delete it: {shlex.join(self._deletion(name))}")
        return not delete

    def train(self, training: Training, slot: int) -> None:
        """Trains on all workers of the TPU of `slot`."""
        name, console = self._name(slot), self._console
        if slot not in self._ready:
            self._find_or_create(name)
            self._install(name)
        self._ready.discard(slot)

        def halt() -> None:
            console.say(f"asking the workers of {name} to save and stop")
            console.ask(self._ssh(name, self.on_worker([])), last=True)

        console.run({name: self._ssh(name, self.on_worker(training.command(".venv/bin/python")))}, training.logs, halt)
        self._ready.add(slot)  # only now is it known to be all right

    def on_worker(self, command: Sequence[str]) -> str:
        """The shell command that runs a command on a worker; see worker.sh."""
        return shlex.join(["exec", "bash", f"{self._code.directory}/scripts/launch/worker.sh", *command])

    def _find_or_create(self, name: str) -> None:
        """Returns once the TPU is ready."""
        console, waiting = self._console, False
        while True:
            found = self._describe(name)
            if found is None:
                console.say(f"# creating {name}" if console.dry_run else f"creating {name}")
                self._create(name)
                if console.dry_run:
                    return
                continue
            if _type(found) not in (None, self._options.type):
                other = f"{name} is there already, and is a {_type(found)}"
                raise Unusable(f"{other}: --type={self._options.type} needs another --name", USAGE, again=False)
            state = _state(found)
            if state in ("ACTIVE", "READY"):
                return
            if state in _LOST:
                self._make_way(name, found)
                continue
            if state == "STOPPED":
                start = shlex.join(self._gcloud("tpu-vm", "start", name))
                raise Unusable(f"{name} is stopped; to start it: {start}", USAGE, again=False)
            if not waiting:
                console.say(f"waiting for {name}, which is {state}")
            waiting = True
            console.wait(POLL_SECONDS)

    def _name(self, slot: int) -> str:
        return self._options.name if self._options.jobs == 1 else f"{self._options.name}-{slot}"

    def _describe(self, name: str, *, last: bool = False) -> dict[str, Any] | None:
        """Describes a TPU, as gcloud knows it; None if there is none of that name."""
        said = self._ask(self._gcloud(self.kind, "describe", name, "--format=json"), "gcloud", last=last)
        return json.loads(said) if said else None

    def _create(self, name: str) -> None:
        options = self._options
        what = [f"--node-id={name}", f"--accelerator-type={options.type}", f"--runtime-version={self._runtime}"]
        command = self._gcloud("queued-resources", "create", name, *what, *options.create_flag, "--quiet")
        self._ask(command, f"{name} could not be created", absent_is_fine=False)

    def _make_way(self, name: str, found: dict[str, Any]) -> None:
        """Deletes what is lost; fails where it was not granted, as it may not be when it is asked for again."""
        error = found["state"].get("failedData", {}).get("error", {}) if isinstance(found["state"], dict) else {}
        why = " ".join(str(error.get("message") or error or "no reason given").split())
        what = f"{name} is {_state(found)} ({why})"
        if not self._options.delete:
            advice = "with --delete it is deleted and asked for again"
            raise Unusable(f"{what}, and what is left of it takes up its name: {advice}", again=False)
        self._delete(name)
        if _state(found) == "FAILED":
            raise Failed(what, again=not _MISTAKE.search(what))

    def _delete(self, name: str, *, last: bool = False) -> None:
        if not self._console.dry_run:
            self._console.say(f"deleting {name}")
        self._ask(self._deletion(name), f"{name} could not be deleted", last=last)

    def _deletion(self, name: str) -> list[str]:
        return self._gcloud("queued-resources", "delete", name, "--force", "--quiet")  # with its TPU

    def _install(self, name: str) -> None:
        """Copies the code to all workers and makes the environment."""
        archive, directory, console = self._code.archive, self._code.directory, self._console
        unpack = f"mkdir -p {directory} && tar -xzf {archive.name} -C {directory}"
        if not console.dry_run:
            console.say(f"installing commit {self._code.commit[:12]} on the workers of {name}")
        console.do(self._gcloud("tpu-vm", "scp", str(archive), f"{name}:{archive.name}", *self._to_all("scp")))
        console.do(self._ssh(name, f"{unpack} && {self._code.install(directory)}"))

    def _ssh(self, name: str, command: str) -> list[str]:
        return self._gcloud("tpu-vm", "ssh", name, *self._to_all("ssh"), f"--command={command}")

    def _to_all(self, program: str) -> list[str]:
        address = ["--internal-ip"] if self._options.internal_ip else []
        return ["--worker=all", *address, *(f"--{program}-flag={flag}" for flag in _KEEP_ALIVE)]

    def _gcloud(self, kind: str, verb: str, *arguments: str) -> list[str]:
        return ["gcloud", "compute", "tpus", kind, verb, *arguments, f"--zone={self._options.zone}"]

    def _ask(self, command: list[str], what: str, *, last: bool = False, absent_is_fine: bool = True) -> str:
        """Returns the output of gcloud; empty if it knows nothing of that name."""
        done = self._console.ask(command, last=last)
        if done.returncode and not (absent_is_fine and _ABSENT.search(done.stderr)):
            again = done.returncode != USAGE and not _MISTAKE.search(done.stderr)
            raise Failed(f"{what}: {error_line(done.stderr)}", done.returncode, again=again)
        return done.stdout


class TpuVm(Tpu):
    """Trains on a TPU per slot that is there at once, or not at all."""

    kind = "tpu-vm"

    def _create(self, name: str) -> None:
        options = self._options
        what = [f"--accelerator-type={options.type}", f"--version={self._runtime}"]
        command = self._gcloud(self.kind, "create", name, *what, *options.create_flag, "--quiet")
        self._ask(command, f"{name} could not be created", absent_is_fine=False)

    def _deletion(self, name: str) -> list[str]:
        return self._gcloud(self.kind, "delete", name, "--quiet")


def _state(found: dict[str, Any]) -> str:
    """The state of a TPU: a queued resource has it in a section of its own."""
    state = found["state"]
    return state if isinstance(state, str) else state["state"]


def _type(found: dict[str, Any]) -> str | None:
    """The type of a TPU, or the one that a queued resource asks for; None if it does not say."""
    specs = found.get("tpu", {}).get("nodeSpec", [])
    return specs[0]["node"].get("acceleratorType") if specs else found.get("acceleratorType")
