"""State of each run, from its workdir: files of the run, and the record that its launcher keeps beside them."""

import contextlib
import os
import platform
from typing import Any, NamedTuple

from experiments.core.errors import DamagedError
from experiments.core.record import metrics
from experiments.core.record.files import is_remote, read_object, write_json
from experiments.core.record.workdir import Workdir
from experiments.core.report.results import length
from scripts.launch.training import Training

LAUNCH = "launch.json"  # in a workdir: how a run that was started here goes
# A run that was submitted goes on without its launcher, which may not have seen its end.
DONE, RUNNING, SUBMITTED, FAILED, TO_DO = "done", "running", "submitted", "failed", "to do"


class State(NamedTuple):
    """One of the words above, how far the run is, and the error of its last attempt."""

    word: str
    reached: str = ""
    reason: str = ""


def reached(training: Training) -> tuple[float, str]:
    """How far a run is: its last epoch or step, alone and with its name; -1 and "" where that cannot be read."""
    workdir = Workdir(training.workdir)
    with contextlib.suppress(Exception):  # the run will say so when it goes on
        unit, total = length(read_object(workdir.config, ""))
        last = metrics.read(workdir.metrics)[-1][unit]
        return last, f"{unit} {last}/{total}"
    return -1, ""


def read(training: Training) -> State:
    """The state of a run, as far as it can be told from here."""
    try:
        if Workdir(training.workdir).is_done():
            return State(DONE, reached(training)[1])
    except DamagedError as error:
        return State(FAILED, reached(training)[1], str(error))
    so_far = reached(training)[1]
    record = _read_record(training)
    word = record.get("state", TO_DO)
    return State(TO_DO if word == RUNNING and not holder(training) else word, so_far, record.get("reason", ""))


def holder(training: Training) -> str:
    """Another launcher that trains the run; empty if there is none. One of another machine may be gone, unnoticed."""
    record = _read_record(training)
    host, pid = record.get("host"), record.get("pid")
    if record.get("state") != RUNNING or (host == platform.node() and (pid == os.getpid() or not _is_alive(pid))):
        return ""
    return f"process {pid} on {host}"


def _is_alive(pid: Any) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _read_record(training: Training) -> dict[str, Any]:
    path = Workdir(training.workdir).path / LAUNCH
    return read_object(path, "remove it, if no launcher trains the run") if path.exists() else {}


def record(training: Training, word: str, reason: str = "") -> None:
    """Records the state of a run of this launcher; a run does not fail because that cannot be written."""
    path = Workdir(training.workdir).path
    with contextlib.suppress(Exception):
        if not is_remote(path):
            path.mkdir(parents=True, exist_ok=True)
        write_json(path / LAUNCH, {"state": word, "reason": reason, "host": platform.node(), "pid": os.getpid()})


def table(states: dict[str, State]) -> list[str]:
    """The lines of a table of states, by name."""
    rows = [("run", "state", "reached", "last error"), *((name, *state) for name, state in states.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
