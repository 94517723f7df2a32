"""A config that its machine cannot train is refused in a line, before anything is created."""

import sys

import pytest

from tests.scripts.launch.conftest import commands

pytestmark = pytest.mark.filterwarnings(r"ignore:the load_module\(\) method:DeprecationWarning")  # of ml_collections
VMOE = ["queued-resource", "vmoe", "--config=configs/vmoe.py:router=hard", "--workdir=gs://bucket/runs/a"]
LOCAL = ["local", "mnist_pruning", "--workdir=runs/none", "--dry_run"]
TPU = ["--name=tpu", "--zone=us-east1-d", "--type=v5p-16", "--commit=HEAD"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*LOCAL, "--", "--config.lam.stort=1"], "--config.lam.stort: the config has no field 'stort'"),
        ([*LOCAL, "--sweep=config.p=2,1"], "p=1: config.p=1.0 is not allowed: "),
        ([*LOCAL, "--config=configs/mnist_pruning.py:nothing"], "variant 'nothing' is not one of dense, hard"),
        ([*VMOE, *TPU, "--", "--config.mesh.expert=3"], "config.mesh={'data': -1, 'expert': 3, 'fsdp': 1} is not all"),
        (
            [*VMOE, *TPU, "--env=TFDS_DATA_DIR=/d", "--sweep=config.router.k=28,401"],
            "router.k=401: config.router.k=401 is not allowed: ",
        ),
        ([*VMOE, *TPU, "--type=v5p-17"], "--type=v5p-17 is not allowed: it must be one of "),
        (
            [*VMOE, *TPU],
            "config.dataset='imagenet2012' is not allowed: it must be one that workers can download, or --da",
        ),
        ([*VMOE, *TPU, "--data=gs://bucket/tfds"], "--data=gs://bucket/tfds has no data set 'imagenet2012'"),
    ],
)
def test_untrainable_config_runs_no_command(cloud, launch, arguments, message):
    status, out, err = launch(*arguments, check=True)
    assert (status, out, cloud.calls) == (2, "", [])
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


def test_dry_run_prints_only_commands(launch):
    sweep = ["--workdir=runs/none", "--dry_run", "--sweep=config.seeds=range(2)", "--", "--config.mesh.data=2"]
    config = "--config=configs/cifar100_vit.py:small"
    status, out, err = launch("local", "cifar100_vit", config, *sweep, check=True)
    assert (status, err) == (0, "")
    overrides = [["--config.mesh.data=2", f"--config.seeds={seed}"] for seed in range(2)]
    assert [command[-2:] for command in commands(out)] == overrides


def test_config_fitting_the_tpu_is_launched(cloud, launch, bucket_server):
    overrides = ["--config.mesh.expert=4", "--config.mesh.fsdp=2"]  # of the eight devices of two hosts
    bucket_server.store("bucket/tfds/imagenet2012/5.1.0/features.json", b"{}", None)
    assert launch(*VMOE, *TPU, "--data=gs://bucket/tfds", "--", *overrides, check=True)[0] == 0
    ran = " ".join(word for call in cloud.calls for word in call if word.startswith("--command="))
    assert "TFDS_DATA_DIR=/tmp/buckets/bucket/tfds" in ran
    assert "gcsfuse --implicit-dirs bucket /tmp/buckets/bucket;" in ran


@pytest.mark.parametrize("status", [0, 2, 3])  # it fits; it cannot be compiled; it does not fit
def test_compiler_refusal_prevents_launch(cloud, launch, tmp_path, monkeypatch, status):
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\necho "$@"\nexit {status}\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    returned, out, err = launch(*VMOE, *TPU, "--compile_first", "--", "--config.mesh.expert=4")
    assert out.startswith(
        "-m scripts.compile vmoe --config=configs/vmoe.py:router=hard --type=v5p-16 --no_evaluation "
        "--config.mesh.expert=4\n"
    )
    assert returned == (2 if status else 0)
    assert ("error: vmoe does not fit on v5p-16, or cannot be compiled for it: see above" in err) == bool(status)
    assert bool(cloud.calls) == (not status)
