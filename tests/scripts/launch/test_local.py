"""The launcher on this machine, with the real training command."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from scripts.launch.code import ROOT
from scripts.launch.process import Console
from tests.experiments.support import wait_for_end
from tests.scripts.launch.conftest import commands

DIGITS = ["--config.dataset=digits", "--config.seeds=(0, 1)", "--config.epochs=40", "--config.checkpoint_every=8"]
DIGITS += ["--config.hidden=()", "--config.prune_layers=(1,)"]  # to compile takes as long as the layers are many
SWEEP = "--sweep=config.optimizer.learning_rate=0.1,0.05"


def local(workdir, *options):
    return ["local", "mnist_pruning", "--config=configs/mnist_pruning.py:dense", f"--workdir={workdir}", *options]


def start(arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "scripts.launch", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_a_sweep_stopped_half_way_finishes_what_was_left_once_nobody_holds_it(tmp_path, launch, monkeypatch):
    arguments = [*local(tmp_path / "sweep", SWEEP, "--devices=1"), "--", *DIGITS]
    first = start(arguments)
    lines = iter(first.stdout.readline, "")
    next(line for line in lines if "learning_rate=0.05: starts" in line)
    next(line for line in lines if "epoch  9/40" in line)
    first.send_signal(signal.SIGTERM)
    said = "".join(lines)
    first.stdout.close()
    assert first.wait(timeout=1200) == 0
    assert "stopped by SIGTERM after epoch" in said
    assert re.search(r"learning_rate=0.1 +done +epoch 40/40", said)
    assert re.search(r"learning_rate=0.05 +to do +epoch \d+/40", said)

    # As if a launcher had been killed that leaves its run, which ends while the next launcher waits for it.
    holds = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX)"
    holds += "; print(flush=True); sys.stdin.read()"
    lock = tmp_path / "sweep" / "learning_rate=0.05" / ".lock"
    holder = [sys.executable, "-IS", "-c", holds, str(lock)]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as left:
        left.stdout.readline()
        monkeypatch.setattr(Console, "wait", lambda console, seconds: left.communicate())
        status, said, _ = launch(*arguments)
    assert status == 0
    assert "learning_rate=0.1: was done" in said
    assert "waiting for a process of an earlier launcher to end" in said
    assert "[learning_rate=0.05] resuming after epoch" in said
    for rate in ("0.1", "0.05"):
        summary = json.loads((tmp_path / "sweep" / f"learning_rate={rate}" / "summary.json").read_text())
        assert summary["state"] == "done"
    assert "resuming" in (tmp_path / "sweep" / "learning_rate=0.05" / "logs" / "process-0.log").read_text()


def test_a_mistake_fails_every_point_with_its_reason(tmp_path, launch):
    status, out, err = launch(*local(tmp_path), "--", "--config.dataset=digits", "--config.epocs=3")
    assert (status, err) == (2, "")
    assert "has no field 'epocs': did you mean epochs?" in out.splitlines()[-2]
    status, again, _ = launch(*local(tmp_path, "--status"))
    assert status == 0
    assert again.splitlines() == out.splitlines()[-3:-1]


def test_a_dry_run_prints_every_process_and_leaves_nothing(tmp_path, launch):
    status, out, _ = launch(*local(tmp_path / "no", SWEEP, "--dry_run", "--processes=2", "--devices=4", "--port=4000"))
    assert status == 0
    assert not (tmp_path / "no").exists()
    assert len(commands(out)) == 4
    assert commands(out)[1][:6] == [
        *("env", "JAX_COORDINATOR_ADDRESS=127.0.0.1:4000", "JAX_NUM_PROCESSES=2", "JAX_PROCESS_ID=1"),
        *("JAX_PLATFORMS=cpu", "JAX_NUM_CPU_DEVICES=4"),
    ]


def test_when_one_of_two_processes_is_killed_the_other_is_stopped_and_the_run_can_go_on(tmp_path, launch):
    workdir = tmp_path / "run"
    first = start([*local(workdir, "--processes=2", "--devices=1", "--no_check"), "--", *DIGITS])
    lines = iter(first.stdout.readline, "")
    next(line for line in lines if "epoch  9/40" in line)
    pids = processes_of(workdir)
    assert sorted(pids) == ["0", "1"]
    os.kill(pids["1"], signal.SIGKILL)
    said = "".join(lines)
    first.stdout.close()
    assert first.wait(timeout=600) == 128 + signal.SIGKILL
    assert "process 1: ended by signal 9" in said
    assert re.search(r"mnist_pruning +failed +epoch \d+/40", said)
    assert wait_for_end(list(pids.values())) == []

    status, said, _ = launch(*local(workdir, "--devices=1"), "--", *DIGITS)
    assert status == 0
    assert "[mnist_pruning] resuming after epoch" in said
    assert json.loads((workdir / "summary.json").read_text())["state"] == "done"


def processes_of(workdir):
    """The training processes of a workdir, by their number."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            arguments = (path / "cmdline").read_text().split("\0")
            environment = dict(entry.partition("=")[::2] for entry in (path / "environ").read_text().split("\0"))
            if f"--workdir={workdir}" in arguments and "experiments.mnist_pruning" in arguments:
                found[environment["JAX_PROCESS_ID"]] = int(path.name)
    return found
