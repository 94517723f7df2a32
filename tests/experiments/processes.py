"""Runs of any experiment by its command line, as one process or as several that are joined on this machine."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.core.record import metrics
from tests.experiments.support import start

Processes = list[subprocess.Popen[str]]


def begin(
    module: str,
    config: str,
    workdir: Path,
    fields: Mapping[str, Any],
    *,
    processes: int = 1,
    devices: int = 1,
    kill_at: tuple[int, float] | None = None,
) -> Processes:
    """Starts a run in the root of the repository.

    Args:
      module: of the experiment, say `experiments.cifar100_vit`.
      config: as --config has it: path and variant.
      workdir: one for all of them.
      fields: of the config, by dotted name.
      processes: how many.
      devices: CPU devices of each.
      kill_at: after how many rows, and how many seconds from then, a run of one process is to be killed.

    Returns:
      The processes; each knows of the others by the variables of `experiments.core.training.processes`.
    """
    arguments = [sys.executable, "-m", module, f"--config={config}", f"--workdir={workdir}"]
    arguments += [f"--config.{name}={value}" for name, value in fields.items()]
    if kill_at:
        arguments = signalled(arguments, signal.SIGKILL, *kill_at)
    common = environment(devices)
    if processes > 1:
        common |= {"JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}", "JAX_NUM_PROCESSES": str(processes)}
    own = [{"JAX_PROCESS_ID": str(index)} if processes > 1 else {} for index in range(processes)]
    return [start(arguments, env=common | variables) for variables in own]


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
        time.sleep(0.002)


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
