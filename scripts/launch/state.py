"""How far each run of a sweep is, from what lies in its workdir."""

import dataclasses
import os
import platform
from typing import Any

from experiments.core.errors import DamagedError, UsageError
from experiments.core.record import metrics
from experiments.core.record.files import read_object, write_json
from experiments.core.record.workdir import Workdir
from experiments.core.report import results
from scripts.launch.training import Training

RECORD = "launch.json"  # in the workdir, beside what the run writes itself
DONE, RUNNING, FAILED, TO_DO = "done", "running", "failed", "to do"
PAUSED = "paused"  # its last attempt has failed, and its launcher waits for the next
INTERRUPTED = "interrupted"  # its launcher was stopped, and what that had submitted goes on
_HELD = (RUNNING, PAUSED)  # by a launcher


@dataclasses.dataclass(frozen=True)
class State:
    """Of a run: one of the words above, how far it is, and the reason if its last attempt has failed."""

    word: str
    reached: str = ""
    reason: str = ""


def read(training: Training) -> State:
    """The state of a run, as far as can be told from here."""
    workdir = Workdir(training.workdir)
    reached = _reached(workdir)
    try:
        if workdir.is_done():
            return State(DONE, reached)
    except DamagedError as error:
        return State(FAILED, reached, str(error))
    record = read_record(training)
    if record.get("state") in (FAILED, INTERRUPTED):
        return State(record["state"], reached, record["reason"])
    if record.get("state") == PAUSED and _is_alive(record):
        return State(PAUSED, reached, record["reason"])
    # What is submitted goes on without the launcher, which has not seen its end.
    if record.get("state") == RUNNING and (record.get("submitted") or _is_alive(record)):
        return State(RUNNING, reached)
    return State(TO_DO, reached, record.get("reason", ""))


def launcher_of(training: Training) -> dict[str, Any] | None:
    """The launcher that has the run, if one does: its `host`, and its `pid` there."""
    record = read_record(training)
    return record["launcher"] if record.get("state") in _HELD and _is_alive(record) else None


def num_rows(training: Training) -> int:
    """The rows of metrics that a run has so far: what it advances by."""
    return len(metrics.lines(Workdir(training.workdir).metrics))


def read_record(training: Training) -> dict[str, Any]:
    """What was recorded last; empty at first.

    Raises:
      DamagedError: the record is none.
    """
    path = Workdir(training.workdir).path / RECORD
    if not path.exists():
        return {}
    advice = "remove it, if no launcher has the run any more"
    record = read_object(path, advice)
    if not isinstance(record.get("launcher"), dict) or not {"host", "pid"} <= record["launcher"].keys():
        raise DamagedError(path, "it names no launcher", advice)
    return record


def record(training: Training, word: str, **fields: Any) -> None:
    """Records the state of a run, over what was recorded before; for the launcher alone."""
    path = Workdir(training.workdir).path
    if not str(path).startswith("gs://"):
        path.mkdir(parents=True, exist_ok=True)
    launcher = {"host": platform.node(), "pid": os.getpid()}
    write_json(path / RECORD, read_record(training) | {"state": word, "launcher": launcher, "reason": ""} | fields)


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
        unit, length = results.length(read_object(workdir.config, ""))
    except UsageError:  # which the run will say when it goes on
        return ""
    return f"{unit} {rows[-1][unit]}/{length}"


def _is_alive(record: dict[str, Any]) -> bool:
    """Whether the launcher that recorded it still runs; taken for granted where that is another machine."""
    launcher = record["launcher"]
    if launcher["host"] != platform.node():
        return True
    try:
        os.kill(launcher["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return launcher["pid"] != os.getpid()
