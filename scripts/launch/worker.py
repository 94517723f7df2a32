"""On a worker of a TPU: runs a command in the stead of whatever was left running by an earlier connection.

    python -m scripts.launch.worker -- COMMAND ...     run it; its lines and exit status are passed on
    python -m scripts.launch.worker --stop             ask what runs to save and end

A connection that breaks leaves its command running, with the accelerator in its hands: whoever
comes next stops it first. A command whose lines nobody takes any more is asked to save and end.
It needs nothing but Python's own library.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

RECORD = Path.home() / "sparse-topk" / "running.json"
PATIENCE = 120.0  # seconds that a run has to save in


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status of what it ran."""
    if arguments == ["--stop"]:
        stop_what_runs()
        return 0
    if arguments[:1] != ["--"] or len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    stop_what_runs()
    return run(arguments[1:])


def run(command: Sequence[str]) -> int:
    """Runs `command`, passes its lines on, and returns its exit status, 128 + N if signal N ended it."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(json.dumps({"pid": process.pid, "started": _started(process.pid)}))

        def pass_on(number: int, frame: FrameType | None) -> None:
            _send(process.pid, signal.SIGTERM)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, pass_on)
        assert process.stdout is not None
        heard = True
        for line in process.stdout:
            if heard:
                heard = _say(line)
                if not heard:
                    _send(process.pid, signal.SIGTERM)
        status = process.wait()
    if _record().get("pid") == process.pid:  # and not that of whoever has come next
        RECORD.unlink(missing_ok=True)
    return 128 - status if status < 0 else status


def stop_what_runs(patience: float = PATIENCE) -> None:
    """Asks the command that an earlier call runs, if any, to end, and ends it after a while."""
    record = _record()
    if not record:
        return
    pid, started = record["pid"], record["started"]
    deadline = time.monotonic() + patience
    if _started(pid) == started:
        print(f"stopping process {pid}, which was left running", flush=True)
        _send(pid, signal.SIGTERM)
        while _started(pid) == started:
            if time.monotonic() > deadline:
                _send(pid, signal.SIGKILL)
            time.sleep(0.1)


def _record() -> dict[str, Any]:
    """Of the command that was begun last; empty if there is none."""
    try:
        record = json.loads(RECORD.read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) and {"pid", "started"} <= record.keys() else {}


def _say(line: bytes) -> bool:
    """Whether someone takes the line."""
    try:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    except OSError:
        # At exit, Python would try once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _started(pid: int) -> str | None:
    """When the process began, which tells it from others that had its number; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
