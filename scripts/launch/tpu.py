"""TPU VMs of Google Cloud, by gcloud: as queued resources, which come when their turn comes, or at once.

Every run has a TPU to itself. It is asked for, or taken as it is if it is there with the type asked for; the code is
copied to all its workers and installed; then all workers run the training command, each over a connection of gcloud's.
If one of them fails, JAX ends the others within two minutes, and all start again.
"""

import argparse
import json
import shlex
from collections.abc import Sequence

from experiments.core.errors import UsageError
from scripts.arguments import FLAG, NAME, ZONE
from scripts.launch import code
from scripts.launch.process import MISTAKE, USAGE, Console, Failed, Unusable
from scripts.launch.scheduler import Platform
from scripts.launch.training import Training

# The software version for JAX, of https://docs.cloud.google.com/tpu/docs/runtimes.
_RUNTIMES = {
    **{"v4": "tpu-ubuntu2204-base", "v5litepod": "v2-alpha-tpuv5-lite"},
    **{"v5p": "v2-alpha-tpuv5", "v6e": "v2-alpha-tpuv6e"},
}
# The states of a lost TPU: taken away, stopped or never granted. It must be deleted before its name is free.
_LOST = ("SUSPENDED", "FAILED", "PREEMPTED", "TERMINATED")
POLL_SECONDS = 20.0  # between two looks at a TPU to come
# A connection over which nothing comes for hours is kept, and one that is gone is noticed, in three minutes.
_KEEP_ALIVE = ("-oServerAliveInterval=30", "-oServerAliveCountMax=6")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this platform."""
    add = parser.add_argument
    add("--name", type=NAME, required=True, help="of the TPU; with --jobs=J above 1, NAME-0 to NAME-(J-1)")
    add("--zone", type=ZONE, required=True)
    add("--type", required=True, help="as gcloud's --accelerator-type, for example v5litepod-16")
    create_help = "for gcloud's create, for example --spot; repeatable"
    add("--create_flag", type=FLAG, action="append", default=[], metavar="FLAG", help=create_help)
    add("--internal_ip", action="store_true", help="connect to internal addresses, the only ones of some projects")
    delete_help = "delete a TPU that was lost, to ask for it again, and each once no run is left for it"
    add("--delete", action="store_true", help=delete_help)
    code.add_options(parser)


class Tpu(Platform):
    """Trains on a TPU per slot, a queued resource."""

    retries = 10
    far = True
    queued = True

    def __init__(self, options: argparse.Namespace, console: Console):
        super().__init__(options, console)
        self.type, self.data = options.type, options.data
        if (generation := options.type.partition("-")[0]) not in _RUNTIMES:
            raise UsageError(f"--type={options.type} is not allowed: it must be of {', '.join(_RUNTIMES)}")
        self._runtime = _RUNTIMES[generation]
        self._code = code.Code.of(options)

    def prepare(self) -> None:
        """Packs the code."""
        self._code.pack(self._console)

    def release(self, slot: int, *, keep: bool) -> bool:
        """Deletes the TPU of `slot`, or says how to; one of another type is somebody else's affair."""
        name, console, delete = self._name(slot), self._console, self._options.delete and not keep
        said = "is still there, and paid for"
        try:
            description = self._describe(name, last=True)
            if description is None and not console.dry_run:
                return True
            if delete:
                self._delete(name, last=True)
                return True
        except Unusable:
            return True
        except Exception as error:  # whatever it is: the user must hear of the TPU
            said = f"may still be there, and paid for ({error})"
        if not console.dry_run:
            console.say(f"{name} {said}; to delete it: {shlex.join(self._deletion(name))}")
        return not delete

    def train(self, training: Training, slot: int) -> None:
        """Trains on all workers of the TPU of `slot`, once it is there and has the code."""
        name, console = self._name(slot), self._console
        archive, directory = self._code.archive, self._code.directory
        self._find_or_create(name)
        if not console.dry_run:
            console.say(f"installing commit {self._code.commit[:12]} on the workers of {name}")
        console.do(self._on_all("scp", str(archive), f"{name}:{archive.name}"))
        unpack = f"mkdir -p {directory} && tar -xzf {archive.name} -C {directory}"
        mount = f" && {code.mount(self.data)}" if self.data else ""
        console.do(self._ssh(name, f"{unpack}{mount} && {self._code.install(directory)}"))

        def halt() -> None:
            console.say(f"asking the workers of {name} to save and stop")
            console.ask(self._ssh(name, self.on_worker([])), last=True)

        console.run({name: self._ssh(name, self.on_worker(training.command(".venv/bin/python")))}, training.logs, halt)

    def on_worker(self, command: Sequence[str]) -> str:
        """The shell command that runs a command on a worker; see worker.sh."""
        return shlex.join(["exec", "bash", f"{self._code.directory}/scripts/launch/worker.sh", *command])

    def _find_or_create(self, name: str) -> None:
        """Returns once the TPU is ready; deletes one that was lost, and fails: the next attempt asks for it again."""
        console = self._console
        while (description := self._describe(name)) is None or description[0] not in ("ACTIVE", "READY"):
            if description is None:
                console.say(f"# creating {name}" if console.dry_run else f"creating {name}, and waiting for it")
                self._create(name)
                if console.dry_run:
                    return
            elif description[0] in _LOST:
                lost = f"{name} is {description[1]}"
                if not self._options.delete:
                    advice = "with --delete it is deleted and asked for again"
                    raise Unusable(f"{lost}, and what is left of it takes up its name: {advice}", again=False)
                self._delete(name)
                raise Failed(lost, again=not MISTAKE.search(lost))
            else:
                console.wait(POLL_SECONDS)

    def _name(self, slot: int) -> str:
        return self._options.name if self._options.jobs == 1 else f"{self._options.name}-{slot}"

    def _describe(self, name: str, *, last: bool = False) -> tuple[str, str] | None:
        """The state of a TPU, and all that gcloud says of it; None if there is none of that name.

        Raises:
          Unusable: it is of another type, or stopped, and so somebody else's affair.
        """
        said = self._console.do(self._tpus("describe", name, "--format=json"), "gcloud", last=last, may_lack=True)
        if not said:
            return None
        description = json.loads(said)
        state = description["state"]["state"] if self.queued else description["state"]
        type_ = (description["tpu"]["nodeSpec"][0]["node"] if self.queued else description).get("acceleratorType")
        if type_ not in (None, self.type) or state == "STOPPED":
            other = f"{name} is there already, a {type_} that is {state}"
            raise Unusable(f"{other}: it needs to be started, or this run another --name", USAGE, again=False)
        return state, json.dumps(description["state"])

    def _create(self, name: str) -> None:
        runtime = f"--runtime-version={self._runtime}" if self.queued else f"--version={self._runtime}"
        what = [*([f"--node-id={name}"] if self.queued else []), f"--accelerator-type={self.type}", runtime]
        command = self._tpus("create", name, *what, *self._options.create_flag, "--quiet")
        self._console.do(command, f"{name} could not be created")

    def _delete(self, name: str, *, last: bool = False) -> None:
        if not self._console.dry_run:
            self._console.say(f"deleting {name}")
        self._console.do(self._deletion(name), f"{name} could not be deleted", last=last, may_lack=True)

    def _deletion(self, name: str) -> list[str]:
        return self._tpus("delete", name, *(["--force"] if self.queued else []), "--quiet")  # with its TPU

    def _ssh(self, name: str, command: str) -> list[str]:
        return self._on_all("ssh", name, f"--command={command}")

    def _on_all(self, program: str, *arguments: str) -> list[str]:
        flags = [f"--{program}-flag={flag}" for flag in _KEEP_ALIVE]
        address = ["--internal-ip"] if self._options.internal_ip else []
        return self._gcloud("tpu-vm", program, *arguments, "--worker=all", *address, *flags)

    def _tpus(self, *arguments: str) -> list[str]:
        return self._gcloud("queued-resources" if self.queued else "tpu-vm", *arguments)

    def _gcloud(self, *arguments: str) -> list[str]:
        return ["gcloud", "compute", "tpus", *arguments, f"--zone={self._options.zone}"]


class TpuVm(Tpu):
    """Trains on a TPU per slot that is there at once, or not at all."""

    queued = False
