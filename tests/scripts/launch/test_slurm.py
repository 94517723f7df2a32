"""Jobs of SLURM: what is submitted, why it failed, and what becomes of it when the launcher is stopped."""

import os
import re
import signal
import subprocess
import threading

import pytest

from scripts.launch import slurm as slurm_lib
from tests.scripts.launch.conftest import commands
from tests.scripts.launch.fakes import HANG, flag

OVERRIDES = ["--config.seeds=(0, 1)", "--config.note=it's $HOME $$; `x`"]


def slurm(tmp_path, *options):
    return ["slurm", "mnist_pruning", f"--workdir={tmp_path}/50%done", *options, "--", *OVERRIDES]


def test_job_gets_its_arguments_and_log(cloud, launch, tmp_path):
    options = ["--nodes=2", "--gpus_per_node=8", "--sbatch_flag=--partition=a b"]
    _, printed, _ = launch(*slurm(tmp_path, *options, "--dry_run"))
    assert list(tmp_path.iterdir()) == []
    status, out, err = launch(*slurm(tmp_path, *options))
    assert (status, err) == (0, "")
    assert cloud.calls == commands(printed)
    (job,) = cloud.calls
    assert job[-3:] == [f"--workdir={tmp_path}/50%done", *OVERRIDES]
    assert {"--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=8", "--partition=a b"} < set(job)
    assert flag(job, "output") == f"{tmp_path}/50%%done/logs/job.log"
    assert f"logs: {tmp_path}/50%done/logs\n" in out


def test_failures_retry_but_mistakes_do_not(cloud, launch, tmp_path):
    cloud.plans["sbatch"] = ["sbatch: error: Batch job submission failed: QOSMaxSubmitJobPerUserLimit"]
    cloud.plans["train"] = [(1, 1, "0: ValueError: a reason"), (2, 2, "0: error: config.p=9 is not allowed")]
    status, out, _ = launch(*slurm(tmp_path))
    assert status == 2
    assert len(cloud.calls) == 3
    assert "QOSMaxSubmitJobPerUserLimit; log: " in out
    assert f"job: exit status 1: 0: ValueError: a reason; log: {tmp_path}/50%done/logs/job.log; attempt 1 of 3" in out
    assert "FAILED: job: exit status 2: 0: error: config.p=9 is not allowed" in out


@pytest.mark.parametrize("when", ["running", "pausing"])
def test_ctrl_c_submits_no_more_jobs(cloud, launch, tmp_path, when):
    """Leaves alone a job that was submitted."""
    event, outcome = ("sbatch", "sbatch: error: QOSMaxSubmitJobPerUserLimit") if when == "pausing" else ("train", HANG)
    cloud.plans[event] = [outcome]

    def interrupt():
        cloud.hanging.wait(1.0 if when == "pausing" else 600)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    status, out, _ = launch(*slurm(tmp_path, "--pause_seconds=60"))
    thread.join()
    assert status == 0
    assert "run it again and it resumes" in out
    assert len(cloud.calls) == 1
    assert re.search(r"mnist_pruning +" + ("to do +job: .*QOSMax" if when == "pausing" else "submitted"), out)


def test_srun_gets_the_cpus_of_sbatch(tmp_path):
    (tmp_path / "srun").write_text('#!/usr/bin/env bash\necho "$SRUN_CPUS_PER_TASK"\n')
    (tmp_path / "srun").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_CPUS_PER_TASK": "7"}
    done = subprocess.run(["bash", str(slurm_lib._SCRIPT), "true"], env=environment, capture_output=True, text=True)
    assert done.stdout == "7\n"
