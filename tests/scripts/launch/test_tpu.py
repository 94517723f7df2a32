"""TPUs of a fake Google Cloud, whose workers run the real commands in real shells: creation, failures, recovery."""

import json
import platform
import re
import shlex
import signal
import subprocess
import threading
import time

import pytest

from scripts.launch import code, state
from scripts.launch.code import ROOT
from tests.scripts.launch.conftest import WHOLE, commands

WORKDIR = "gs://bucket/runs/a"
SMALL = "--type=v6e-4"  # one worker
NODE = {"acceleratorType": "v6e-8", "state": "READY", "networkEndpoints": [{}, {}]}
OVERRIDES = ["--config.seeds=(0, 1)", '--config.note=it\'s $HOME; `x` "y" \\ & *']
TPU = ["--name=tpu", "--zone=us-east1-d", "--type=v6e-8", "--poll_seconds=0.01", "--commit=HEAD"]


def arguments(platform, *options, workdir=WORKDIR):
    return [platform, "mnist_pruning", f"--workdir={workdir}", *TPU, *options, "--", *OVERRIDES]


def gcloud(world, verb):
    return [call for call in world.recorded("calls") if call[0] == "gcloud" and call[4] == verb]


def starts(world):
    return sorted(entry["worker"] for entry in world.recorded("trained"))


@pytest.mark.parametrize("platform", ["tpu-vm", "queued-resource"])
def test_a_dry_run_prints_what_a_run_does(world, launch, platform):
    status, printed, _ = launch(
        *arguments(platform, "--dry_run", "--workers=2", "--delete=always", "--prepare=echo hi")
    )
    assert status == 0
    assert world.recorded("calls") == []
    status, out, err = launch(*arguments(platform, "--delete=always", "--prepare=echo hi"))
    assert (status, err) == (0, "")
    # Workers go to work at the same time, in any order; git is nobody's fake.
    done = [call for call in world.recorded("calls") if call[0] == "gcloud"]
    assert sorted(done) == sorted(call for call in commands(printed) if call[0] == "gcloud")
    assert [call[4] for call in done] == [call[4] for call in commands(printed) if call[0] == "gcloud"]
    assert "[tpu 1] hi" in out
    assert world.thing("tpu-vm-tpu") is None


def test_every_worker_gets_the_arguments_byte_for_byte(world, launch, monkeypatch):
    monkeypatch.setattr(code, "_PARTS", WHOLE)
    status, out, _ = launch(*arguments("tpu-vm", "--env=NAME=a b"))
    assert status == 0
    assert starts(world) == ["0", "1"]
    for entry in world.recorded("trained"):
        config = "--config=configs/mnist_pruning.py"
        assert entry["arguments"] == ["-m", "experiments.mnist_pruning", config, f"--workdir={WORKDIR}", *OVERRIDES]
    assert "[mnist_pruning 1] training on worker 1" in out
    assert "tpu is still there" in out
    assert shlex.join(["gcloud", "compute", "tpus", "tpu-vm", "delete", "tpu", "--quiet", "--zone=us-east1-d"]) in out
    assert gcloud(world, "delete") == []
    # Connections over which nothing comes are kept, and those that are gone are noticed.
    assert all("--ssh-flag=-oServerAliveInterval=30" in call for call in gcloud(world, "ssh"))
    assert all("--scp-flag=-oServerAliveInterval=30" in call for call in gcloud(world, "scp"))


def test_an_existing_tpu_is_used_and_one_of_another_type_refused(world, launch):
    world.put("tpu-vm-tpu", NODE | {"acceleratorType": "v6e-4", "networkEndpoints": [{}]})
    assert launch(*arguments("tpu-vm", SMALL))[0] == 0
    world.put("tpu-vm-tpu", NODE | {"acceleratorType": "v5litepod-8"})
    status, out, _ = launch(*arguments("tpu-vm", SMALL, workdir="gs://bucket/runs/b"))
    assert status == 2
    assert "FAILED: tpu is there already, and is a v5litepod-8" in out
    assert starts(world) == ["0"]
    assert gcloud(world, "create") == []


def test_quota_is_waited_for_and_a_lack_of_rights_is_not(world, launch):
    full = "ERROR: (gcloud.compute.tpus.tpu-vm.create) RESOURCE_EXHAUSTED: There is no more capacity in the zone"
    world.plan("tpu-vm-create", full, full)
    status, out, _ = launch(*arguments("tpu-vm", SMALL))
    assert status == 0
    assert len(gcloud(world, "create")) == 3
    assert out.count("attempt 1 of 10 more") == 1
    assert out.count("attempt 2 of 10 more") == 1
    world.put("tpu-vm-tpu", None)
    world.plan("tpu-vm-create", "ERROR: (gcloud.compute.tpus.tpu-vm.create) PERMISSION_DENIED: tpu.nodes.create")
    status, out, _ = launch(*arguments("tpu-vm", SMALL, workdir="gs://bucket/runs/b"))
    assert status == 1
    assert "FAILED: tpu could not be created: ERROR" in out
    assert len(gcloud(world, "create")) == 4


@pytest.mark.parametrize("platform", ["tpu-vm", "queued-resource"])
def test_a_preempted_tpu_is_created_again_where_that_is_allowed(world, launch, platform):
    world.plan("ssh-0", "preempt")
    status, out, _ = launch(*arguments(platform, SMALL, "--spot", "--delete=preempted"))
    assert status == 0
    assert len(gcloud(world, "create")) == 2
    assert len(gcloud(world, "delete")) == 1
    assert all("--spot" in call for call in gcloud(world, "create"))
    assert "the TPU was preempted; attempt 1" in out

    world.plan("ssh-0", "preempt")
    status, out, _ = launch(*arguments(platform, SMALL, "--spot", workdir="gs://bucket/runs/b"))
    assert status == 1
    assert "with --delete=preempted it is deleted" in out
    assert len(gcloud(world, "delete")) == 1


def test_a_queued_resource_that_will_not_come_is_asked_for_again_as_often_as_is_said_with_its_reason(world, launch):
    quota = {"state": "FAILED", "failedData": {"error": {"code": 8, "message": "Quota limit 'TPUS'\nis exceeded"}}}
    world.plan("queued-resources-create", quota, quota)
    status, out, _ = launch(*arguments("queued-resource", SMALL, "--delete=preempted", "--retries=1"))
    assert status == 1
    assert "tpu is FAILED (Quota limit 'TPUS' is exceeded); attempt 1 of 1 more" in out
    assert "FAILED: tpu is FAILED (Quota limit 'TPUS' is exceeded)\n" in out
    assert (len(gcloud(world, "create")), len(gcloud(world, "delete"))) == (2, 2)
    assert launch(*arguments("queued-resource", SMALL, "--delete=preempted"))[0] == 0

    world.plan("queued-resources-create", {"state": "FAILED"})
    options = [SMALL, "--name=other", "--retries=1"]
    status, out, _ = launch(*arguments("queued-resource", *options, workdir="gs://bucket/runs/b"))
    assert status == 1
    assert "FAILED: other is FAILED (it does not say why), and what is left of it takes up its name" in out
    mistake = {"error": {"code": 3, "message": "INVALID_ARGUMENT: no such network"}}
    world.plan("queued-resources-create", {"state": "FAILED", "failedData": mistake})
    options += ["--name=third", "--delete=always"]
    status, out, _ = launch(*arguments("queued-resource", *options, workdir="gs://bucket/runs/b"))
    assert status == 1
    assert "FAILED: third is FAILED (INVALID_ARGUMENT: no such network)\n" in out
    assert "attempt" not in out


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"state": "STOPPED"},
            "tpu-1 is stopped; to start it: gcloud compute tpus tpu-vm start tpu-1 --zone=us-east1-d --project=p\n",
        ),
        ({"acceleratorType": "v5litepod-8"}, "tpu-1 is there already, and is a v5litepod-8: "),
    ],
)
def test_a_tpu_that_is_of_no_use_fails_one_run_and_the_others_go_on(world, launch, changed, message):
    unusable = NODE | {"acceleratorType": "v6e-4", "networkEndpoints": [{}]} | changed
    world.put("tpu-vm-tpu-1", unusable)
    options = ["--project=p", "--delete=always", "--jobs=2", "--sweep=config.p=2,1.5,1.25"]
    status, out, _ = launch(*arguments("tpu-vm", SMALL, *options))
    assert status == 2
    assert f": FAILED: {message}" in out
    assert starts(world) == ["0", "0"]
    assert len(re.findall(r"^p=\S+ +done +epoch", out, re.MULTILINE)) == 2
    assert world.thing("tpu-vm-tpu-0") is None
    assert world.thing("tpu-vm-tpu-1") == unusable


def test_when_a_worker_dies_the_others_are_stopped_and_all_start_again(world, launch):
    world.plan("train-0", "hang")
    world.plan("train-1", {"rows": 1, "status": 134, "error": "jaxlib.XlaRuntimeError: INTERNAL: worker is gone"})
    status, out, _ = launch(*arguments("tpu-vm"))
    assert status == 0
    assert starts(world) == ["0", "0", "1", "1"]
    assert world.recorded("terminated") == ["0"]
    assert "worker 1: exit status 134: jaxlib.XlaRuntimeError: INTERNAL: worker is gone; attempt 1 of 10" in out


def test_what_a_dropped_connection_leaves_running_is_stopped_first(world, launch):
    world.plan("ssh-0", "drop")
    world.plan("train-0", "hang")
    status, out, _ = launch(*arguments("tpu-vm"))
    assert status == 0
    assert "0" in world.recorded("terminated"), out
    assert starts(world) == ["0", "0", "1", "1"], out
    assert "closed by remote host" in out


def test_a_mistake_is_not_repeated_and_its_status_returned(world, launch):
    world.plan("train-0", {"rows": 0, "status": 2, "error": "error: config.p=7 is not allowed"})
    status, out, _ = launch(*arguments("tpu-vm"))
    assert status == 2
    assert starts(world) == ["0", "1"]
    table = out[out.index("run  ") :]
    assert "failed" in table
    assert "worker 0: exit status 2: error: config.p=7 is not allowed" in table


def test_progress_gives_a_run_its_attempts_back(world, launch):
    crash = {"status": 1, "error": "ValueError: again"}
    world.plan("train-0", *({"rows": rows} | crash for rows in (1, 2, 2)))
    status, out, _ = launch(*arguments("tpu-vm", SMALL, "--retries=1"))
    assert status == 1
    assert starts(world) == ["0"] * 3
    assert "FAILED: worker 0: exit status 1: ValueError: again" in out
    assert launch(*arguments("tpu-vm", SMALL))[0] == 0
    status, out, _ = launch(*arguments("tpu-vm", SMALL, "--status"))
    assert status == 0
    assert "mnist_pruning  done   epoch 4/4" in out


def test_runs_of_a_sweep_have_a_tpu_each(world, launch):
    sweep = [SMALL, "--sweep=config.p=2,1.5", "--sweep=config.lam.start=1e-3", "--jobs=2"]
    status, _, _ = launch(*arguments("tpu-vm", *sweep))
    assert status == 0
    assert {call[5] for call in gcloud(world, "create")} == {"tpu-0", "tpu-1"}
    assert {entry["arguments"][3] for entry in world.recorded("trained")} == {
        f"--workdir={WORKDIR}/p=2,start=1e-3",
        f"--workdir={WORKDIR}/p=1.5,start=1e-3",
    }
    calls = len(world.recorded("calls"))
    status, out, _ = launch(*arguments("tpu-vm", *sweep))
    assert status == 0
    # No more than a look at what is still there.
    assert [call[4] for call in world.recorded("calls")[calls:]] == ["describe", "describe"]
    assert "tpu-0 is still there" in out
    assert "tpu-1 is still there" in out


def test_a_network_that_is_gone_is_waited_for_and_a_program_that_is_killed_is_a_failure(world, launch):
    gone = "ERROR: gcloud crashed (ConnectionError): ('Connection aborted.', TimeoutError(110))"
    world.plan("tpu-vm-describe", gone)
    world.plan("tpu-vm-create", gone, "killed")
    status, out, _ = launch(*arguments("tpu-vm", SMALL, "--retries=2"))
    assert f"gcloud: {gone}; attempt 1 of 2" in out
    assert f"tpu could not be created: {gone}; attempt 2 of 2" in out
    assert "FAILED: tpu could not be created" in out
    assert status == 128 + signal.SIGKILL


def test_a_bucket_that_cannot_be_reached_ends_one_attempt_and_no_other_run(world, launch, monkeypatch):
    def num_rows(training):
        if training.name == "p=2":
            raise ConnectionError("the bucket is gone")
        return ask(training)

    ask = state.num_rows
    monkeypatch.setattr(state, "num_rows", num_rows)
    world.plan("tpu-vm-describe", "ERROR: another reason")
    status, out, _ = launch(*arguments("tpu-vm", SMALL, "--sweep=config.p=2,1.5", "--retries=0"))
    assert status == 1
    assert "p=2: FAILED: ConnectionError: the bucket is gone" in out
    assert "p=1.5: FAILED: gcloud: ERROR: another reason" in out


def test_code_that_cannot_be_packed_is_said_in_a_line(world, launch, monkeypatch, tmp_path):
    monkeypatch.setattr(code.Code, "archive", tmp_path / "nowhere" / "a.tar.gz")
    status, _, err = launch(*arguments("tpu-vm"))
    assert status > 0
    assert err.startswith("error: git: ")
    assert err.count("\n") == 1


@pytest.fixture
def done(bucket_server):
    """The run has been done, by a launcher that died thereafter."""
    bucket_server.store("bucket/runs/a/summary.json", b'{"state": "done"}', None)


def test_what_an_earlier_launcher_has_left_is_deleted_at_the_end(world, launch, done):
    world.put("tpu-vm-tpu", NODE | {"acceleratorType": "v5litepod-8"})  # somebody else's
    assert launch(*arguments("tpu-vm", "--delete=always"))[0] == 0
    assert gcloud(world, "delete") == []
    world.put("tpu-vm-tpu", NODE)
    status, out, _ = launch(*arguments("tpu-vm", "--delete=always"))
    assert status == 0
    assert "was done" in out
    assert world.thing("tpu-vm-tpu") is None


def test_a_tpu_that_could_not_be_deleted_is_named_and_the_others_are_deleted(world, launch, done):
    world.put("tpu-vm-tpu-0", NODE)
    world.put("tpu-vm-tpu-1", NODE)
    world.plan("tpu-vm-delete", "ERROR: (gcloud.compute.tpus.tpu-vm.delete) PERMISSION_DENIED: tpu.nodes.delete")
    status, out, err = launch(*arguments("tpu-vm", "--delete=always", "--jobs=2"))
    assert (status, err) == (1, "")
    (left,) = (name for name in ("tpu-0", "tpu-1") if world.thing(f"tpu-vm-{name}"))
    assert f"{left} may still be there, and paid for ({left} could not be deleted: ERROR" in out
    assert shlex.join(["gcloud", "compute", "tpus", "tpu-vm", "delete", left, "--quiet", "--zone=us-east1-d"]) in out
    world.plan("tpu-vm-delete", f"ERROR: (gcloud.compute.tpus.tpu-vm.delete) NOT_FOUND: {left} was not found")
    status, out, _ = launch(*arguments("tpu-vm", "--delete=always", "--jobs=2"))
    assert status == 0
    assert "paid for" not in out


def test_after_a_failure_or_a_mistake_what_is_to_be_deleted_is(world, launch):
    small = NODE | {"acceleratorType": "v6e-4", "networkEndpoints": [{}]}
    world.put("tpu-vm-tpu", small)
    options = ["--delete=always", "--retries=1", "--prepare=exit 2"]
    status, out, _ = launch(*arguments("tpu-vm", SMALL, *options))
    assert status == 2
    assert "exit status 2: it said nothing; attempt 1 of 1" in out  # which is no mistake in the config
    assert [call[5] for call in gcloud(world, "delete")] == ["tpu"]

    another = NODE | {"acceleratorType": "v5litepod-8"}
    world.put("tpu-vm-tpu-0", small)
    world.put("tpu-vm-tpu-1", another)
    status, out, _ = launch(*arguments("tpu-vm", SMALL, *options, "--jobs=2", "--sweep=config.p=2,1.5"))
    assert status == 2
    assert "FAILED: tpu-1 is there already" in out
    assert world.thing("tpu-vm-tpu-0") is None
    assert world.thing("tpu-vm-tpu-1") == another


def test_a_run_that_another_launcher_has_is_refused(world, launch, bucket_server):
    with subprocess.Popen(["sleep", "600"]) as other:
        for host in (platform.node(), "elsewhere"):
            record = {"state": "running", "launcher": {"host": host, "pid": other.pid}}
            bucket_server.store("bucket/runs/a/launch.json", json.dumps(record).encode(), None)
            status, _, err = launch(*arguments("tpu-vm", SMALL))
            assert status == 2
            assert f"is in the hands of another launcher, process {other.pid} on {host}" in err
            assert "--take_over" in err
            assert world.recorded("calls") == []
        other.kill()
    world.plan("tpu-vm-describe", "ERROR: it is asked for")
    status, out, _ = launch(*arguments("tpu-vm", SMALL, "--retries=0", "--take_over"))
    assert status == 1
    assert "FAILED: gcloud: ERROR: it is asked for" in out


def test_a_signal_lets_the_workers_save_and_names_the_tpu_that_stays(world, launch, bucket_server):
    for name in ("tpu-0", "tpu-1"):
        world.put(f"tpu-vm-{name}", NODE | {"acceleratorType": "v6e-4", "networkEndpoints": [{}]})
    bucket_server.store("bucket/runs/a/p=1.5/summary.json", b'{"state": "done"}', None)
    world.plan("train-0", "hang")
    sent = []

    def stop():
        """As soon as the run that is left hangs, and the TPU that it has no need of is gone."""
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            if any(world.path.glob("homes/*/hangs")) and gcloud(world, "delete"):
                break
            time.sleep(0.05)
        # One that nobody handles would end the tests.
        sent.append(signal.SIGHUP if callable(signal.getsignal(signal.SIGHUP)) else signal.SIGINT)
        signal.pthread_kill(threading.main_thread().ident, sent[0])

    thread = threading.Thread(target=stop)
    thread.start()
    status, out, _ = launch(*arguments("tpu-vm", SMALL, "--delete=always", "--jobs=2", "--sweep=config.p=2,1.5"))
    thread.join()
    assert sent == [signal.SIGHUP]
    assert status == 0
    assert "SIGHUP: stopping" in out
    ((*_, gone), *others) = [call[:6] for call in gcloud(world, "delete")]
    assert others == []
    (left,) = {"tpu-0", "tpu-1"} - {gone}
    assert f"asking the workers of {left} to save and stop" in out
    assert "0" in world.recorded("terminated")
    assert f"{left} is still there, and paid for" in out
    assert re.search(r"p=[\d.]+ +to do", out)


def test_what_the_runbook_prepares_workers_with_may_be_repeated(tmp_path):
    (prepare,) = re.findall(r"--prepare '(mkdir.*)'", (ROOT / "scripts" / "launch" / "README.md").read_text())
    for name, script in {
        "mountpoint": f"[[ -e {tmp_path}/mounted ]]",
        "gcsfuse": f"[[ ! -e {tmp_path}/mounted ]] && touch {tmp_path}/mounted",
    }.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    command = f"PATH={tmp_path}:$PATH; ({prepare.replace('/tmp/tfds', str(tmp_path / 'tfds'))})"
    for _ in range(2):
        assert subprocess.run(["bash", "-c", command]).returncode == 0
    assert (tmp_path / "mounted").exists()
