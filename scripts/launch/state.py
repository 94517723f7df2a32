"""State of each run, from its workdir: files of the run, and the record that its launcher keeps beside them."""

import contextlib
import dataclasses
import os
import platform
from typing import Any

from experiments.core.errors import DamagedError, UsageError
from experiments.core.record import metrics
from experiments.core.record.files import is_remote, read_object, write_json
from experiments.core.record.workdir import Workdir
from experiments.core.report.results import length
from scripts.launch.training import Training

LAUNCH = "launch.json"  # in a workdir: how a run that was started here goes
DONE, RUNNING, FAILED, TO_DO = "done", "running", "failed", "to do"


@dataclasses.dataclass(frozen=True)
class State:
    """One of the words above, how far the run is, and the error of its last attempt."""

    word: str
    reached: str = ""
    reason: str = ""


def read(training: Training) -> State:
    """The state of a run, as far as it can be told from here."""
    workdir = Workdir(training.workdir)
    reached = _reached(workdir)
    try:
        if workdir.is_done():
            return State(DONE, reached)
    except DamagedError as error:
        return State(FAILED, reached, str(error))
    record = _read_record(training)
    word = record.get("state", TO_DO)
    # A job that was submitted goes on without its launcher, which may not have seen its end.
    if word == RUNNING and not record.get("submitted") and not holder(training):
        word = TO_DO
    return State(word, reached, record.get("reason", ""))


def holder(training: Training) -> str:
    """Another launcher that trains the run; empty if there is none. One of another machine may be gone, unnoticed."""
    record = _read_record(training)
    launcher = record.get("launcher", {})
    here = launcher.get("host") == platform.node()
    if record.get("state") != RUNNING or (here and launcher["pid"] == os.getpid()):
        return ""
    if here:
        try:
            os.kill(launcher["pid"], 0)
        except ProcessLookupError:
            return ""
        except PermissionError:
            pass
    return f"process {launcher['pid']} on {launcher['host']}"


def num_rows(training: Training) -> int:
    """The rows of metrics that a run has so far, which tell of progress; 0 where they cannot be read."""
    with contextlib.suppress(Exception):
        return len(metrics.lines(Workdir(training.workdir).metrics))
    return 0


def _read_record(training: Training) -> dict[str, Any]:
    path = Workdir(training.workdir).path / LAUNCH
    if not path.exists():
        return {}
    advice = "remove it, if no launcher trains the run"
    record = read_object(path, advice)
    if not isinstance(record.get("launcher"), dict) or not {"host", "pid"} <= record["launcher"].keys():
        raise DamagedError(path, "it names no launcher", advice)
    return record


def record(training: Training, word: str, reason: str = "", *, submitted: bool = False) -> None:
    """Records the state of a run of this launcher, and whether a job of it goes on when the launcher is gone."""
    path = Workdir(training.workdir).path
    if not is_remote(path):
        path.mkdir(parents=True, exist_ok=True)
    launcher = {"host": platform.node(), "pid": os.getpid()}
    fields = {"state": word, "reason": reason, "submitted": submitted, "launcher": launcher}
    write_json(path / LAUNCH, fields)


def table(states: dict[str, State]) -> list[str]:
    """The lines of a table of states, by name."""
    rows = [("run", "state", "reached", "last error")]
    rows += [(name, state.word, state.reached, state.reason) for name, state in states.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]).rstrip()
        for row in rows
    ]


def _reached(workdir: Workdir) -> str:
    try:
        rows = metrics.read(workdir.metrics)
        if not rows or not workdir.config.exists():
            return ""
        unit, total = length(read_object(workdir.config, ""))
    except UsageError:  # the run will say so when it goes on
        return ""
    return f"{unit} {rows[-1][unit]}/{total}"
