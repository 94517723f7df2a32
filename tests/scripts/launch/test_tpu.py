"""TPUs of a fake Google Cloud, whose workers run the real commands in real shells: creation, failures, recovery."""

import shlex

import pytest

from tests.scripts.launch.conftest import commands

WORKDIR = "gs://bucket/runs/a"
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


def test_every_worker_gets_the_arguments_byte_for_byte(world, launch):
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


def test_an_existing_tpu_is_used_and_one_of_another_type_refused(world, launch):
    node = {"acceleratorType": "v6e-8", "state": "READY", "networkEndpoints": [{}, {}]}
    world.put("tpu-vm-tpu", node)
    assert launch(*arguments("tpu-vm"))[0] == 0
    world.put("tpu-vm-tpu", node | {"acceleratorType": "v5litepod-8"})
    status, _, err = launch(*arguments("tpu-vm", workdir="gs://bucket/runs/b"))
    assert status == 2
    assert "tpu is there already, and is a v5litepod-8" in err
    assert starts(world) == ["0", "1"]
    assert gcloud(world, "create") == []


def test_quota_is_waited_for_and_a_lack_of_rights_is_not(world, launch):
    full = "ERROR: (gcloud.compute.tpus.tpu-vm.create) RESOURCE_EXHAUSTED: There is no more capacity in the zone"
    world.plan("tpu-vm-create", full, full)
    status, out, _ = launch(*arguments("tpu-vm"))
    assert status == 0
    assert len(gcloud(world, "create")) == 3
    assert out.count("attempt 1 of 10 more") == 1
    assert out.count("attempt 2 of 10 more") == 1
    world.put("tpu-vm-tpu", None)
    world.plan("tpu-vm-create", "ERROR: (gcloud.compute.tpus.tpu-vm.create) PERMISSION_DENIED: tpu.nodes.create")
    status, out, _ = launch(*arguments("tpu-vm", workdir="gs://bucket/runs/b"))
    assert status == 1
    assert "FAILED: tpu could not be created: ERROR" in out
    assert len(gcloud(world, "create")) == 4


@pytest.mark.parametrize("platform", ["tpu-vm", "queued-resource"])
def test_a_preempted_tpu_is_created_again_where_that_is_allowed(world, launch, platform):
    world.plan("ssh-0", "preempt")
    status, out, _ = launch(*arguments(platform, "--spot", "--delete=preempted"))
    assert status == 0
    assert len(gcloud(world, "create")) == 2
    assert len(gcloud(world, "delete")) == 1
    assert all("--spot" in call for call in gcloud(world, "create"))
    assert "the TPU was preempted; attempt 1" in out

    world.plan("ssh-0", "preempt")
    status, out, _ = launch(*arguments(platform, "--spot", workdir="gs://bucket/runs/b"))
    assert status == 1
    assert "with --delete=preempted it is deleted" in out
    assert len(gcloud(world, "delete")) == 1


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
    world.plan("train-0", *({"rows": rows} | crash for rows in (1, 2, 3, 3, 3)))
    status, out, _ = launch(*arguments("tpu-vm", "--retries=2"))
    assert status == 1
    assert len([worker for worker in starts(world) if worker == "0"]) == 5
    assert "FAILED: worker 0: exit status 1: ValueError: again" in out
    assert launch(*arguments("tpu-vm", "--retries=2"))[0] == 0
    status, out, _ = launch(*arguments("tpu-vm", "--status"))
    assert status == 0
    assert "mnist_pruning  done   epoch 4/4" in out


def test_runs_of_a_sweep_have_a_tpu_each(world, launch):
    sweep = ["--sweep=config.p=2,1.5", "--sweep=config.lam.start=1e-3", "--jobs=2"]
    status, _, _ = launch(*arguments("tpu-vm", *sweep))
    assert status == 0
    assert {call[5] for call in gcloud(world, "create")} == {"tpu-0", "tpu-1"}
    assert {entry["arguments"][3] for entry in world.recorded("trained")} == {
        f"--workdir={WORKDIR}/p=2,start=1e-3",
        f"--workdir={WORKDIR}/p=1.5,start=1e-3",
    }
    calls = len(world.recorded("calls"))
    assert launch(*arguments("tpu-vm", *sweep))[0] == 0
    assert len(world.recorded("calls")) == calls
