"""Launches tiny runs on a real SLURM of one node, this machine: `make test-slurm`, and by its name alone.

It needs `apt-get install slurmctld slurmd slurm-client munge`, and root, as which slurmd runs. It starts these daemons
itself, with all their files in a directory of its own and on ports of its own, beside whatever else there may be, and
stops them at the end.
"""

import contextlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.experiments.processes import ended, free_port

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "sinfo", "scancel")
PATIENCE = 900.0  # seconds for anything
MUNGE_FILES = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="module", autouse=True)
def directory():
    """Where the logs of a SLURM of one node are; sets SLURM_CONF for whoever asks for it."""
    if missing := [program for program in NEEDED if not shutil.which(program)]:
        pytest.exit(f"{', '.join(missing)} is not here: apt-get install slurmctld slurmd slurm-client munge", 2)
    if os.geteuid():
        pytest.exit("slurmd runs as root alone: sudo make test-slurm", 2)
    directory = Path(tempfile.mkdtemp(prefix="slurm-"))
    directory.chmod(0o755)
    for name in ("state", "spool"):
        (directory / name).mkdir()
    key = directory / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    config = directory / "slurm.conf"
    host = platform.node().partition(".")[0]
    config.write_text(
        CONFIG.format(host=host, ports=(free_port(), free_port()), directory=directory, cpus=os.cpu_count())
    )
    os.environ["SLURM_CONF"] = str(config)
    munge = [f"--{name}={directory}/munge.{end}" for name, end in MUNGE_FILES.items()]
    daemons = []
    try:
        for command in (
            ["munged", "--foreground", "--force", *munge],
            ["slurmctld", "-D", "-c", "-f", config],
            ["slurmd", "-D", "-c", "-f", config],
        ):
            with (directory / f"{command[0]}.out").open("w") as log:
                daemons.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        until("the node is idle", lambda: run("sinfo", "--noheader", "--format=%T").stdout.strip() == "idle")
        yield directory
    finally:
        run("scancel", "--user=root")
        for daemon in reversed(daemons):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(20)
            daemon.kill()
            daemon.wait()


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def until(what, holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it took more than {PATIENCE:.0f} s until {what}")
        time.sleep(0.5)


def launcher(workdir, *overrides, options=()):
    command = [
        sys.executable,
        "-m",
        "scripts.launch",
        "slurm",
        "mnist_pruning",
        "--config=configs/mnist_pruning.py:relaxed",
        f"--workdir={workdir}",
        "--sbatch_flag=--time=10",
        "--pause_seconds=1",
        *options,
        "--",
        "--config.dataset=digits",
        "--config.validation_size=100",
        "--config.seeds=(0,)",
        *overrides,
    ]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_run_is_done(directory):
    workdir = directory / "done"
    ((status, out, _),) = ended([launcher(workdir, "--config.epochs=2")], PATIENCE)
    assert re.search(r"(?m)^mnist_pruning +done +epoch 2/2$", out)
    assert re.search(r"(?m)^0: epoch 2/2", (workdir / "logs" / "job.log").read_text())
    assert status == 0
    assert json.loads((workdir / "summary.json").read_text())["state"] == "done"


def test_a_mistake_is_not_tried_again(directory):
    workdir = directory / "mistake"
    ((status, out, _),) = ended([launcher(workdir, "--config.p=9.0", options=["--no_check"])], PATIENCE)
    assert "FAILED: job: exit status 2: 0: error: config.p=9.0 is not allowed" in out
    assert status == 2
    assert (workdir / "logs" / "job.log").read_text().count("Submitted batch job") == 1


def test_a_job_goes_on_without_its_launcher(directory):
    workdir, metrics = directory / "goes_on", directory / "goes_on" / "metrics.jsonl"
    overrides = ("--config.epochs=400", "--config.checkpoint_every=5")
    process = launcher(workdir, *overrides)
    until("there are rows", lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 3)
    # Not SIGINT: what a shell starts in the background ignores that.
    process.send_signal(signal.SIGTERM)
    ((status, out, _),) = ended([process], PATIENCE)
    assert "or go on if they are submitted" in out
    assert re.search(r"(?m)^mnist_pruning +submitted ", out)
    assert status == 0
    ((status, out, _),) = ended([launcher(workdir, *overrides)], PATIENCE)
    assert re.search(r"(?m)^mnist_pruning +done +epoch 400/400$", out)
    assert status == 0
