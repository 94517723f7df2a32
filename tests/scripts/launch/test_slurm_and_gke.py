"""Jobs of SLURM and workloads of Kubernetes, submitted to fakes that run the real commands in real shells."""

import json
import os
import platform
import re
import signal
import subprocess
import threading
import time

import pytest

from scripts.launch import command
from scripts.launch import gke as gke_lib
from scripts.launch import slurm as slurm_lib
from scripts.launch.training import Training
from tests.scripts.launch.conftest import commands

OVERRIDES = ["--config.seeds=(0, 1)", "--config.note=it's $HOME $$; `x`"]
GKE = ["--cluster=c", "--zone=z", "--type=v6e-16", "--commit=HEAD", "--retries=1"]


def slurm(tmp_path, *options):
    return ["slurm", "mnist_pruning", f"--workdir={tmp_path}/50% done", *options, "--", *OVERRIDES]


def gke(*options):
    return ["gke", "mnist_pruning", "--workdir=gs://bucket/runs/k", *GKE, *options, "--", *OVERRIDES]


def calls(world, *program):
    return [call for call in world.recorded("calls") if call[: len(program)] == list(program)]


def test_a_job_gets_the_arguments_and_its_lines_are_passed_on(world, launch, tmp_path):
    options = ["--nodes=2", "--gpus_per_node=8", "--time=1:00:00", "--sbatch_flag=--partition=a b"]
    _, printed, _ = launch(*slurm(tmp_path, *options, "--dry_run"))
    status, out, err = launch(*slurm(tmp_path, *options))
    assert (status, err) == (0, "")
    assert calls(world, "sbatch") == commands(printed)
    assert world.recorded("trained")[0]["arguments"][3:] == [f"--workdir={tmp_path}/50% done", *OVERRIDES]
    assert "[mnist_pruning] 0: training on worker 0" in out


def test_a_job_that_fails_or_is_refused_is_submitted_again(world, launch, tmp_path):
    world.plan("sbatch", "sbatch: error: Batch job submission failed: QOSMaxSubmitJobPerUserLimit")
    world.plan("train-0", {"rows": 1, "status": 1, "error": "ValueError: a reason"})
    status, out, _ = launch(*slurm(tmp_path))
    assert status == 0
    assert len(calls(world, "sbatch")) == 3
    assert "QOSMaxSubmitJobPerUserLimit; attempt 1 of 3" in out
    assert "job: ValueError: a reason; attempt 1 of 3" in out


def interrupted(tmp_path, capfd, word):
    """What a launcher prints that is interrupted once its run is recorded as `word`."""
    record = tmp_path / "50% done" / "launch.json"

    def interrupt():
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and not (record.exists() and f'"state": "{word}"' in record.read_text()):
            time.sleep(0.02)
        time.sleep(0.5)  # it says so, and waits
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    end = slurm(tmp_path).index("--")
    options = ["--pause_seconds=60", "--no_check"]
    assert command.main([*slurm(tmp_path)[:end], *options, *slurm(tmp_path)[end:]]) == 0
    thread.join()
    return capfd.readouterr().out


def test_ctrl_c_before_another_submission_says_that_nothing_is_queued(world, tmp_path, capfd):
    world.plan("sbatch", "sbatch: error: QOSMaxSubmitJobPerUserLimit")
    out = interrupted(tmp_path, capfd, "paused")
    assert "attempt 1 of 3 more in 60 s" in out
    assert "stopped; nothing is submitted or queued any more; run it again and it resumes" in out
    assert re.search(r"mnist_pruning +to do +job: .*QOSMax", out)
    assert len(calls(world, "sbatch")) == 1


def test_ctrl_c_while_a_job_runs_names_it_as_going_on(world, tmp_path, capfd):
    world.plan("train-0", "hang")
    out = interrupted(tmp_path, capfd, "running")
    assert "stopped; submitted, and going on without the launcher: mnist_pruning; run it again and it resumes" in out
    assert re.search(r"mnist_pruning +interrupted .*; what it submitted goes on", out)


def test_what_slurm_says_is_the_reason_only_where_no_task_gives_one():
    ended = "slurmstepd: error: *** STEP 17.0 ON node1 CANCELLED DUE TO TIME LIMIT ***\n"
    task = "srun: error: node1: task 3: Exited with exit code 1\n"
    assert slurm_lib._reason(f"0: epoch 1/4\n3: ValueError: a reason\n{task}") == "ValueError: a reason"
    assert "TIME LIMIT" in slurm_lib._reason(f"0: epoch 1/4\n{ended}")
    assert slurm_lib._reason("0: epoch 1/4\n") == "epoch 1/4"
    others = "1: jax.errors.JaxRuntimeError: UNAVAILABLE: Connection closed by peer\n"
    cancelled = "srun: error: node1: tasks 0-2: Terminated\n"
    assert slurm_lib._reason(f"3: ValueError: a reason\n{task}{others}{cancelled}") == "ValueError: a reason"


def test_tasks_have_the_processors_that_sbatch_was_asked_for(tmp_path):
    (tmp_path / "srun").write_text('#!/usr/bin/env bash\necho "$SRUN_CPUS_PER_TASK"\n')
    (tmp_path / "srun").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_CPUS_PER_TASK": "7"}
    done = subprocess.run(["bash", str(slurm_lib._SCRIPT), "true"], env=environment, capture_output=True, text=True)
    assert done.stdout == "7\n"


def test_a_workload_gets_the_arguments(world, launch):
    _, printed, _ = launch(*gke("--dry_run"))
    status, _, err = launch(*gke())
    assert (status, err) == (0, "")
    assert calls(world, "xpk") == [command for command in commands(printed) if command[0] == "xpk"]
    assert world.recorded("trained")[0]["arguments"][4:] == OVERRIDES


def test_a_workload_that_fails_has_a_successor_with_another_name(world, launch):
    world.plan("xpk-create", {"says": "[XPK] ERROR: no quota", "status": 1})
    world.plan("train-0", {"rows": 1, "status": 1, "error": "ValueError: a reason"})
    status, out, _ = launch(*gke())
    assert status == 0
    created = calls(world, "xpk", "workload", "create")
    names = [next(word for word in call if word.startswith("--workload=")) for call in created]
    assert [name[-2:] for name in names] == ["-0", "-1", "-2"]
    assert "[XPK] ERROR: no quota; attempt 1 of 1" in out
    assert "ValueError: a reason; attempt 1 of 1" in out


def test_a_mistake_in_the_config_is_not_tried_again_in_a_workload(world, launch):
    world.plan("train-0", {"rows": 0, "status": 2, "error": "error: config.p=9 is not allowed"})
    status, out, _ = launch(*gke())
    assert status == 2
    assert "FAILED: workload" in out
    assert "config.p=9 is not allowed" in out
    assert len(calls(world, "xpk", "workload", "create")) == 1


def test_an_option_that_xpk_does_not_know_is_not_tried_again(world, launch):
    world.plan("xpk-create", {"says": "xpk workload create: error: unrecognized arguments: --no", "status": 2})
    status, _, _ = launch(*gke("--create_flag=--no"))
    assert status == 2
    assert len(calls(world, "xpk", "workload", "create")) == 1


def test_overrides_that_a_manifest_cannot_hold_fail_their_run_and_no_other(world, launch):
    status, out, _ = launch(*gke("--sweep=config.note=a,b\nc", "--jobs=2"))
    assert status == 2
    assert "has a line break or the like, which xpk does not carry" in out
    assert len(calls(world, "xpk", "workload", "create")) == 1
    assert re.search(r"^note=\S+ +done +epoch", out, re.MULTILINE)


def test_a_workload_that_outlasts_the_wait_is_waited_for_again(world, launch):
    world.plan("xpk-list", {"says": "[XPK] Timed out waiting for your workload", "status": 124})
    status, out, _ = launch(*gke("--retries=0"))
    assert status == 0
    assert "goes on, and is waited for" in out


@pytest.mark.parametrize("cluster", ["My_Cluster", "1st", "c-", "c" * 41])
def test_a_name_that_xpk_refuses_is_refused_at_once(world, launch, cluster):
    status, _, err = launch(*gke(f"--cluster={cluster}"))
    assert status == 2
    assert err.startswith(f"error: --cluster={cluster} is not allowed: ")
    assert err.count("\n") == 1
    assert not world.recorded("calls")


def test_workloads_have_names_that_xpk_takes_whatever_the_experiment_is_called():
    for experiment in ("mnist_pruning", "VMoE", "_9", "a" * 99):
        name = gke_lib._name(Training("", experiment, "", "gs://b/r"), 10)
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
        assert len(name) <= 28


def test_a_workload_that_an_earlier_launcher_has_left_is_waited_for(world, launch, bucket_server):
    record = {"state": "running", "launcher": {"host": "elsewhere", "pid": 1}, "attempt": 4, "submitted": True}
    bucket_server.store("bucket/runs/k/launch.json", json.dumps(record).encode(), None)
    world.plan("xpk-list", {"says": "[XPK] the network is gone", "status": 1})
    status, out, _ = launch(*gke())
    assert status == 0
    assert "the network is gone" in out
    (created,) = calls(world, "xpk", "workload", "create")  # as that workload, in the end, was not there
    assert any(word.startswith("--workload=mnist-") and word.endswith("-5") for word in created)


def test_a_workload_goes_on_running_when_its_launcher_has_ended(world, launch, bucket_server):
    for submitted, word in ((True, "running"), (False, "to do")):
        launcher = {"host": platform.node(), "pid": os.getpid()}
        record = {"state": "running", "launcher": launcher, "attempt": 0, "submitted": submitted}
        bucket_server.store("bucket/runs/k/launch.json", json.dumps(record).encode(), None)
        assert word in launch(*gke("--status"))[1]


@pytest.mark.parametrize("kind", ["gke", "tpu-vm"])
def test_a_workdir_that_pods_do_not_see_is_refused(launch, tmp_path, kind):
    options = GKE if kind == "gke" else ["--name=a", "--zone=z", "--type=v6e-8", "--commit=HEAD"]
    status, _, err = launch(kind, "mnist_pruning", f"--workdir={tmp_path}", *options)
    assert status == 2
    assert "gs://BUCKET" in err
    assert err.count("\n") == 1
