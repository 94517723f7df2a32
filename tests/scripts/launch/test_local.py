"""The launcher on this machine, with the real training command."""

import contextlib
import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.experiments.support import wait_for_end
from tests.scripts.launch.conftest import commands

pytestmark = pytest.mark.filterwarnings(r"ignore:the load_module\(\) method:DeprecationWarning")  # of ml_collections

DIGITS = ["--config.dataset=digits", "--config.seeds=(0, 1)", "--config.epochs=40", "--config.checkpoint_every=8"]
DIGITS += ["--config.hidden=()", "--config.prune_layers=(1,)"]  # to compile takes as long as the layers are many


def local(workdir, *options):
    return ["local", "mnist_pruning", "--config=configs/mnist_pruning.py:dense", f"--workdir={workdir}", *options]


def when(workdir, rows, act):
    """Does something once the run has written some rows, beside a launcher."""

    def wait():
        deadline, metrics = time.monotonic() + 600, workdir / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_text().count("\n") >= rows) and time.monotonic() < deadline:
            time.sleep(0.05)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_run_of_two_processes_survives_the_death_of_one(tmp_path, launch):
    workdir, pids = tmp_path / "run", {}

    def kill():
        pids.update(processes_of(workdir))
        os.kill(pids["1"], signal.SIGKILL)

    thread = when(workdir, 10, kill)
    status, said, _ = launch(*local(workdir, "--processes=2", "--devices=1"), "--", *DIGITS)
    thread.join()
    assert status == 128 + signal.SIGKILL
    assert re.search(
        rf"mnist_pruning +failed +epoch \d+/40 +process-1: exit status 137: .*; log: {workdir}/logs/", said
    )
    assert sorted(pids) == ["0", "1"]
    assert wait_for_end(list(pids.values())) == []

    status, said, _ = launch(*local(workdir, "--devices=1"), "--", *DIGITS, check=True)
    assert status == 0
    assert "mnist_pruning: resumes, in " in said
    assert json.loads((workdir / "summary.json").read_text())["state"] == "done"
    assert "resuming after epoch" in (workdir / "logs" / "process-0.log").read_text()


def test_a_dry_run_prints_every_process_and_leaves_nothing(tmp_path, launch):
    sweep = "--sweep=config.optimizer.learning_rate=0.1,0.05"
    status, out, _ = launch(*local(tmp_path / "no", sweep, "--dry_run", "--processes=2", "--devices=4"))
    assert status == 0
    assert not (tmp_path / "no").exists()
    assert len(commands(out)) == 4
    program, address, *rest = commands(out)[1]
    assert program == "env"
    assert re.fullmatch(r"JAX_COORDINATOR_ADDRESS=127\.0\.0\.1:\d+", address)
    assert rest[:4] == ["JAX_NUM_PROCESSES=2", "JAX_PROCESS_ID=1", "JAX_PLATFORMS=cpu", "JAX_NUM_CPU_DEVICES=4"]
    assert rest[-2:] == [f"--workdir={tmp_path}/no/learning_rate=0.1", "--config.optimizer.learning_rate=0.1"]


def processes_of(workdir):
    """The training processes of a workdir, by their number."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            arguments = (path / "cmdline").read_text().split("\0")
            environment = dict(entry.partition("=")[::2] for entry in (path / "environ").read_text().split("\0"))
            if f"--workdir={workdir}" in arguments and "experiments.mnist_pruning" in arguments:
                found[environment.get("JAX_PROCESS_ID", "0")] = int(path.name)
    return found
