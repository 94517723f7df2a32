"""Launches tiny runs on a real SLURM of one node, this machine: `python -m tests.real_slurm`, or `make test-slurm`.

It needs `apt-get install slurmctld slurmd slurm-client munge`, and root, as which slurmd runs. It starts these daemons
itself, with all their files in a directory of its own and on ports of its own, beside whatever else there may be, and
stops them at the end. It says what came of each case, and where the logs are; exit status 1 if one was not as it
should be.
"""

import contextlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


@contextlib.contextmanager
def cluster(directory):
    """A SLURM of one node; sets SLURM_CONF for whoever asks for it."""
    for name in ("state", "spool"):
        (directory / name).mkdir()
    key = directory / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    config = directory / "slurm.conf"
    host = platform.node().partition(".")[0]
    config.write_text(CONFIG.format(host=host, ports=free_ports(2), directory=directory, cpus=os.cpu_count()))
    os.environ["SLURM_CONF"] = str(config)
    munge = [f"--{name}={directory}/munge.{end}" for name, end in MUNGE_FILES.items()]
    daemons = []
    try:
        for command in (
            ["munged", "--foreground", "--force", *munge],
            ["slurmctld", "-D", "-c", "-f", config],
            ["slurmd", "-D", "-c", "-f", config],
        ):
            log = (directory / f"{command[0]}.out").open("w")
            daemons.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        until("the node is idle", lambda: run("sinfo", "--noheader", "--format=%T").stdout.strip() == "idle")
        yield
    finally:
        run("scancel", "--user=root")
        for daemon in reversed(daemons):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(20)
            daemon.kill()
            daemon.wait()


def free_ports(count):
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


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
        *(
            sys.executable,
            "-m",
            "scripts.launch",
            "slurm",
            "mnist_pruning",
            "--config=configs/mnist_pruning.py:relaxed",
        ),
        *(f"--workdir={workdir}", "--sbatch_flag=--time=10", "--pause_seconds=1", *options),
        *("--", "--config.dataset=digits", "--config.validation_size=100", "--config.seeds=(0,)", *overrides),
    ]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process, log):
    try:
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    log.write_text(out)
    return process.returncode, out


def has(out, *patterns):
    """Checks that a launcher has printed lines; its last ones are told if not."""
    missing = [pattern for pattern in patterns if not re.search(pattern, out, re.MULTILINE)]
    assert not missing, f"{missing} is not in what ends with\n" + "\n".join(out.splitlines()[-5:])


def a_run_is_done(directory):
    status, out = ended(launcher(directory / "w", "--config.epochs=2"), directory / "launcher.log")
    has(out, r"^mnist_pruning +done +epoch 2/2$")
    has((directory / "w" / "logs" / "job.log").read_text(), r"^0: epoch 2/2")
    assert status == 0
    assert json.loads((directory / "w" / "summary.json").read_text())["state"] == "done"


def a_mistake_is_not_tried_again(directory):
    log = directory / "launcher.log"
    status, out = ended(launcher(directory / "w", "--config.p=9.0", options=["--no_check"]), log)
    has(out, r"FAILED: job: exit status 2: error: config\.p=9\.0 is not allowed")
    assert status == 2
    assert (directory / "w" / "logs" / "job.log").read_text().count("Submitted batch job") == 1


def a_job_goes_on_without_its_launcher(directory):
    workdir, metrics = directory / "w", directory / "w" / "metrics.jsonl"
    overrides = ("--config.epochs=400", "--config.checkpoint_every=5")
    process = launcher(workdir, *overrides)
    until("there are rows", lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 3)
    # Not SIGINT: what a shell starts in the background ignores that.
    process.send_signal(signal.SIGTERM)
    status, out = ended(process, directory / "launcher.log")
    has(out, "or go on if they are submitted", r"^mnist_pruning +running ")
    assert status == 0
    status, out = ended(launcher(workdir, *overrides), directory / "next.log")
    has(out, r"^mnist_pruning +done +epoch 400/400$")
    assert status == 0


CASES = (a_run_is_done, a_mistake_is_not_tried_again, a_job_goes_on_without_its_launcher)


def main():
    if missing := [program for program in NEEDED if not shutil.which(program)]:
        print(f"error: {', '.join(missing)} is not here: apt-get install slurmctld slurmd slurm-client munge")
        return 2
    if os.geteuid():
        print("error: slurmd runs as root alone: sudo make test-slurm")
        return 2
    directory = Path(tempfile.mkdtemp(prefix="slurm-"))
    directory.chmod(0o755)
    print(f"{run('slurmctld', '-V').stdout.strip()}, logs in {directory}", flush=True)
    failed = 0
    with cluster(directory):
        for number, case in enumerate(CASES, start=1):
            place = directory / case.__name__
            place.mkdir()
            start, said = time.monotonic(), "as it should be"
            try:
                case(place)
            except (AssertionError, TimeoutError, subprocess.TimeoutExpired) as error:
                failed, said = failed + 1, f"FAILED: {error}"
            name = case.__name__.replace("_", " ")
            print(f"[{number}/{len(CASES)}] {name}: {said}  {time.monotonic() - start:.0f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
