"""A cloud without machines: `gcloud` and `sbatch` answer from memory, and fail as they are told to.

The launcher's own functions start a tiny shell program in the place of each, which prints the answer.
"""

import json
import re
import threading
from collections import defaultdict

from experiments.core.record.files import absolute
from scripts.launch import process

_PROGRAMS = ("gcloud", "sbatch")
HANG = "hang"  # of a training command: it runs until it is asked to end


class Cloud:
    """The world behind the programs.

    Attributes:
      calls: the commands that were run.
      plans: outcomes of the next events, by name, in the place of success.
      things: queued resources, by name.
      hanging: set once a training command hangs.
    """

    def __init__(self):
        self.calls, self.plans, self.things = [], defaultdict(list), {}
        self.hanging, self._lock = threading.Event(), threading.Lock()
        self._begin = process._begin

    def begin(self, command, stdout, stderr):
        """In the place of `process._begin`."""
        if command[0] not in _PROGRAMS:
            return self._begin(command, stdout, stderr)
        with self._lock:
            self.calls.append(list(command))
            status, out, err = getattr(self, command[0])(command[1:])
        if status == HANG:
            self.hanging.set()
            return self._begin(["sleep", "600"], stdout, stderr)
        script = 'printf "%s" "$1"; printf "%s" "$2" >&2; exit "$3"'
        return self._begin(["sh", "-c", script, "sh", out, err, str(status)], stdout, stderr)

    def called(self, *words):
        """The commands with all of these words."""
        return [call for call in self.calls if set(words) <= set(call)]

    def next(self, event):
        """The outcome planned for an event; None for success."""
        return self.plans[event].pop(0) if self.plans[event] else None

    def train(self, command):
        """Ends as planned: None, HANG, or (rows, status, words)."""
        workdir = absolute(re.search(r"--workdir=([^ ']*)", command)[1])
        outcome = self.next("train")
        if outcome == HANG:
            return HANG, "", ""
        rows, status, words = outcome or (5, 0, "epoch 4/4")
        lines = [json.dumps({"epoch": epoch, "step": epoch}) + "\n" for epoch in range(rows)]
        workdir.mkdir(parents=True, exist_ok=True)
        (workdir / "metrics.jsonl").write_text("".join(lines))
        (workdir / "config.json").write_text('{"epochs": 4}')
        if rows == 5:
            (workdir / "summary.json").write_text('{"state": "done"}')
        return status, words + "\n", ""

    def gcloud(self, arguments):
        """Queued resources and TPU VMs, and connections to all workers of these."""
        kind, verb, name, *rest = arguments[2:]
        outcome = self.next(verb)
        if isinstance(outcome, str):
            return 1, "", outcome
        if verb == "create":
            node = {"acceleratorType": flag(rest, "accelerator-type")}
            self.things[name] = (
                {"state": outcome or "READY", **node}
                if kind == "tpu-vm"
                else {"state": outcome or {"state": "ACTIVE"}, "tpu": {"nodeSpec": [{"node": node}]}}
            )
        elif verb == "ssh" and "--config=" in flag(rest, "command"):
            if self.next("preempt"):
                at_once = isinstance(self.things[name]["state"], str)
                self.things[name]["state"] = "PREEMPTED" if at_once else {"state": "SUSPENDED"}
                return 255, "", "ERROR: (gcloud.compute.tpus.tpu-vm.ssh) Could not SSH into the instance"
            return self.train(flag(rest, "command"))
        elif verb in ("describe", "delete") and name not in self.things:
            return 1, "", f"ERROR: (gcloud.compute.tpus.{kind}.{verb}) NOT_FOUND: {name} was not found"
        elif verb == "describe":
            return 0, json.dumps(self.things[name]), ""
        elif verb == "delete":
            del self.things[name]
        return 0, "", ""

    def sbatch(self, arguments):
        """A job, which runs at once; what it prints is here printed by sbatch."""
        if outcome := self.next("sbatch"):
            return 1, "", outcome
        return self.train(" ".join(arguments))


def flag(arguments, name):
    """The value of an option."""
    return next((a.split("=", 1)[1] for a in arguments if a.startswith(f"--{name}=")), None)
