"""Runs as processes: signals to them, several that are joined on this machine, and how they end."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.core.record import metrics

Processes = list[subprocess.Popen[str]]


def signalled(arguments: Sequence[str], number: signal.Signals, rows: int, seconds: float = 0.0) -> list[str]:
    """A command `python -m ...` that is sent a signal so many seconds after so many rows."""
    python, m, *rest = arguments
    return [python, m, "tests.experiments.killed", number.name, str(rows), str(seconds), *rest]


def environment(devices: int) -> dict[str, str]:
    """This process's variables, for another with so many CPU devices."""
    # JAX warns of proxies where processes are several; between those of one machine there are none.
    variables = {name: value for name, value in os.environ.items() if "_proxy" not in name.lower()}
    return variables | {"JAX_NUM_CPU_DEVICES": str(devices)}


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as listening:
        listening.bind(("", 0))
        return listening.getsockname()[1]


def assert_killed(processes: Processes, workdir: Path) -> None:
    """Waits for a run that is killed in mid-training."""
    outputs = ended(processes, timeout=600)
    assert [status for status, _, _ in outputs] == [-signal.SIGKILL] * len(outputs), outputs
    assert not (workdir / "summary.json").exists()


def wait_for_rows(processes: Processes, workdir: Path, number: int) -> None:
    """Returns when a run under way has written `number` rows."""
    deadline = time.monotonic() + 600
    while len(metrics.read(workdir / "metrics.jsonl")) < number:
        assert all(process.poll() is None for process in processes), ended(processes)
        assert time.monotonic() < deadline, ended(processes)
        time.sleep(0.02)


def ended(processes: Processes, timeout: float = 0) -> list[tuple[int, str, str]]:
    """Exit status, stdout and stderr of each; those that do not end within `timeout` seconds are killed."""
    outputs = []
    for process in processes:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        outputs.append((process.returncode, out, err))
    return outputs


def finish(processes: Processes) -> list[str]:
    """Waits for processes that are to end well, without a word on stderr; what each printed."""
    outputs = ended(processes, timeout=600)  # of all before any is judged: they fail together
    assert [(status, err) for status, _, err in outputs] == [(0, "")] * len(outputs), outputs
    return [out for _, out, _ in outputs]
