"""TPUs of Google Cloud: created, used, lost, deleted, and what is said of those that stay."""

import json
import platform
import re
import shlex
import signal
import subprocess
import threading

import pytest

from tests.scripts.launch.conftest import commands
from tests.scripts.launch.fakes import HANG, flag

WORKDIR = "gs://bucket/runs/a"
OVERRIDES = ["--config.seeds=(0, 1)", '--config.note=it\'s $HOME; `x` "y" \\ & *']
TPU = ["--name=tpu", "--zone=us-east1-d", "--type=v6e-8", "--commit=HEAD"]


def arguments(*options, workdir=WORKDIR, platform="queued-resource"):
    return [platform, "mnist_pruning", f"--workdir={workdir}", *TPU, *options, "--", *OVERRIDES]


def tpu_of(type_="v6e-8", **state):
    return {"state": {"state": "ACTIVE"} | state, "tpu": {"nodeSpec": [{"node": {"acceleratorType": type_}}]}}


def trainings(cloud):
    return [call for call in cloud.called("ssh") if "scripts/launch/worker.sh" in flag(call, "command")]


@pytest.mark.parametrize(("platform", "kind"), [("queued-resource", "queued-resources"), ("tpu-vm", "tpu-vm")])
def test_a_dry_run_prints_what_a_run_does(cloud, launch, platform, kind):
    options = ["--delete", "--prepare=echo hi", "--env=NAME=a b", "--create_flag=--spot"]
    status, printed, _ = launch(*arguments("--dry_run", *options, platform=platform))
    assert (status, cloud.calls) == (0, [])
    status, out, err = launch(*arguments(*options, platform=platform))
    assert (status, err) == (0, "")
    # How long it takes until the TPU is there is not known before.
    asked = [call for call in cloud.calls if "describe" not in call]
    assert asked == [call for call in commands(printed) if call[0] == "gcloud" and "describe" not in call]
    assert [call[4] for call in asked] == ["create", "scp", "ssh", "ssh", "delete"]
    assert {call[3] for call in asked if call[4] in ("create", "delete")} == {kind}
    assert "--spot" in asked[0]
    assert all({"--worker=all", "--ssh-flag=-oServerAliveInterval=30"} <= set(call) for call in cloud.called("ssh"))
    (trained,) = trainings(cloud)
    words = shlex.split(flag(trained, "command"))
    assert words[words.index("env") :] == [
        "env",
        "NAME=a b",
        ".venv/bin/python",
        "-m",
        "experiments.mnist_pruning",
        "--config=configs/mnist_pruning.py",
        f"--workdir={WORKDIR}",
        *OVERRIDES,
    ]
    assert re.search(r"mnist_pruning +done +epoch 4/4", out)
    assert cloud.things == {}


def test_only_transient_errors_are_retried(cloud, launch):
    cloud.plans["describe"] = ["ERROR: gcloud crashed (ConnectionError): ('Connection aborted.')"]
    cloud.plans["create"] = ["ERROR: (gcloud.create) RESOURCE_EXHAUSTED: There is no more capacity in the zone"]
    status, out, _ = launch(*arguments())
    assert status == 0
    assert "Connection aborted.'); attempt 1 of 10 more" in out
    assert "no more capacity in the zone; attempt 2 of 10 more" in out
    cloud.things.clear()
    cloud.plans["create"] = ["ERROR: (gcloud.create) PERMISSION_DENIED: tpu.nodes.create"]
    status, out, _ = launch(*arguments(workdir="gs://bucket/runs/b"))
    assert status == 1
    assert "FAILED: tpu could not be created: ERROR" in out
    assert len(cloud.called("create")) == 3


@pytest.mark.parametrize("platform", ["queued-resource", "tpu-vm"])
def test_preempted_tpu_is_created_again(cloud, launch, platform):
    cloud.plans["preempt"] = [False, True]  # the second run, on a TPU that was all right for the first
    assert launch(*arguments("--delete", "--sweep=config.p=2,1.5", platform=platform))[0] == 0
    assert len(cloud.called("create")) == len(cloud.called("delete")) == 2

    cloud.plans["preempt"] = [True]
    status, out, _ = launch(*arguments(workdir="gs://bucket/runs/b", platform=platform))
    assert status == 1
    assert "takes up its name: with --delete it is deleted and asked for again" in out
    assert len(cloud.called("delete")) == 2


def test_stopped_tpu_is_left_alone(cloud, launch):
    cloud.things["tpu"] = {"state": "STOPPED", "acceleratorType": "v6e-8"}
    status, out, _ = launch(*arguments("--delete", platform="tpu-vm"))
    assert status == 2
    assert "tpu is there already, a v6e-8 that is STOPPED: it needs to be started" in out
    assert cloud.called("create") == cloud.called("delete") == []


@pytest.mark.parametrize(
    ("message", "asked"), [("Quota limit 'TPUS' is exceeded", 2), ("INVALID_ARGUMENT: no such network", 1)]
)
def test_only_quota_refusals_are_retried(cloud, launch, message, asked):
    cloud.plans["create"] = [{"state": "FAILED", "failedData": {"error": {"message": message}}}] * 2
    status, out, _ = launch(*arguments("--delete", "--retries=1"))
    assert status == 1
    assert re.search(rf"FAILED: tpu is \{{.*{message}", out)
    assert len(cloud.called("create")) == len(cloud.called("delete")) == asked


def test_wrong_tpu_type_fails_only_one_run(cloud, launch):
    cloud.things["tpu-1"] = another = tpu_of("v5litepod-8")
    status, out, _ = launch(*arguments("--delete", "--jobs=2", "--sweep=config.p=2,1.5,1.25"))
    assert status == 2
    assert ": FAILED: tpu-1 is there already, a v5litepod-8 that is ACTIVE: " in out
    assert len(re.findall(r"^p=\S+ +done +epoch", out, re.MULTILINE)) == 2
    assert cloud.things == {"tpu-1": another}


def test_sweep_has_a_tpu_for_each_run(cloud, launch):
    sweep = ["--sweep=config.p=2,1.5", "--sweep=config.lam.start=1e-3", "--jobs=2"]
    assert launch(*arguments(*sweep))[0] == 0
    assert {call[5] for call in cloud.called("create")} == {"tpu-0", "tpu-1"}
    trained = " ".join(flag(call, "command") for call in trainings(cloud))
    assert set(re.findall(r"--workdir=(\S+)", trained)) == {f"{WORKDIR}/p={p},lam.start=1e-3" for p in (2, 1.5)}
    cloud.calls.clear()
    status, out, _ = launch(*arguments(*sweep))
    assert status == 0
    assert out.count(": was done") == 2
    assert [call[4] for call in cloud.calls] == ["describe", "describe"]  # a look at what is still there
    assert out.count("is still there, and paid for") == 2
    assert "gcloud compute tpus queued-resources delete tpu-1 --force --quiet --zone=us-east1-d" in out


def test_mistake_is_reported_not_retried(cloud, launch, tmp_path):
    cloud.plans["train"] = [(0, 2, "error: config.p=7 is not allowed")]
    status, out, _ = launch(*arguments())
    (log,) = tmp_path.glob("logs/a-*/tpu.log")
    assert status == 2
    assert len(trainings(cloud)) == 1
    assert f"failed           tpu: exit status 2: error: config.p=7 is not allowed; log: {log}" in out
    assert log.read_text() == "error: config.p=7 is not allowed\n"


def test_progress_restores_retry_attempts(cloud, launch):
    """Treats an end before the last epoch as a failure."""
    cloud.plans["train"] = [(1, 1, "ValueError: again"), (2, 1, "ValueError: again"), (2, 0, "stopped by SIGTERM")]
    status, out, _ = launch(*arguments("--retries=1"))
    assert status == 1
    assert len(trainings(cloud)) == 3
    assert "tpu: exit status 1: ValueError: again" in out
    assert "FAILED: it ended before it was done (epoch 1/4)" in out
    assert launch(*arguments())[0] == 0
    status, out, _ = launch(*arguments("--status"))
    assert status == 0
    assert "mnist_pruning  done   epoch 4/4" in out


def test_training_errors_fail_only_their_run(cloud, launch, monkeypatch):
    def train(name):
        raise ConnectionError("the bucket is gone") if name == "p=2" else KeyError(name)

    monkeypatch.setattr("scripts.launch.tpu.Tpu.train", lambda tpu, training, *_: train(training.name))
    status, out, _ = launch(*arguments("--sweep=config.p=2,1.5", "--retries=0"))
    assert status == 1
    assert "p=2: FAILED: ConnectionError: the bucket is gone" in out
    assert "p=1.5: FAILED: KeyError: 'p=1.5'" in out


def test_leftover_tpus_are_deleted_or_named(cloud, launch, bucket_server):
    bucket_server.store("bucket/runs/a/summary.json", b'{"state": "done"}', None)
    cloud.things |= {"tpu-0": tpu_of("v5litepod-8"), "tpu-1": tpu_of(), "tpu-2": tpu_of()}
    cloud.plans["delete"] = ["ERROR: (gcloud.delete) PERMISSION_DENIED: tpu.nodes.delete"]
    status, out, err = launch(*arguments("--delete", "--jobs=3"))
    assert (status, err) == (1, "")
    assert "was done" in out
    left = max(cloud.things)
    assert cloud.things.keys() == {"tpu-0", left}  # the first is somebody else's
    assert f"{left} may still be there, and paid for ({left} could not be deleted: ERROR" in out
    assert f"queued-resources delete {left} --force" in out
    cloud.plans["delete"] = [f"ERROR: (gcloud.delete) NOT_FOUND: {left} was not found"]
    status, out, _ = launch(*arguments("--delete", "--jobs=3"))
    assert status == 0
    assert "paid for" not in out


def test_run_of_another_launcher_is_refused(cloud, launch, bucket_server):
    with subprocess.Popen(["sleep", "600"]) as other:
        for host in (platform.node(), "elsewhere"):
            record = {"state": "running", "host": host, "pid": other.pid}
            bucket_server.store("bucket/runs/a/launch.json", json.dumps(record).encode(), None)
            status, _, err = launch(*arguments())
            assert status == 2
            assert f"process {other.pid} on {host} trains {WORKDIR}: " in err
            assert f"remove {WORKDIR}/launch.json" in err
        other.kill()
    assert cloud.calls == []
    record["host"] = platform.node()
    bucket_server.store("bucket/runs/a/launch.json", json.dumps(record).encode(), None)
    assert launch(*arguments())[0] == 0


def test_signal_lets_workers_save_and_stop(cloud, launch, bucket_server):
    cloud.things |= {"tpu-0": tpu_of(), "tpu-1": tpu_of()}
    bucket_server.store("bucket/runs/a/p=1.5/summary.json", b'{"state": "done"}', None)
    cloud.plans["train"] = [HANG]

    def stop():
        cloud.hanging.wait(600)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGHUP)

    thread = threading.Thread(target=stop)
    thread.start()
    status, out, _ = launch(*arguments("--delete", "--jobs=2", "--sweep=config.p=2,1.5"))
    thread.join()
    assert status == 0
    assert "SIGHUP: stopping" in out
    (left,) = cloud.things
    assert cloud.called("create") == []  # those that were there were used
    assert f"asking the workers of {left} to save and stop" in out
    assert shlex.split(flag(trainings(cloud)[-1], "command"))[-1].endswith("/scripts/launch/worker.sh")
    assert f"{left} is still there, and paid for" in out
    assert re.search(r"p=[\d.]+ +to do", out)
