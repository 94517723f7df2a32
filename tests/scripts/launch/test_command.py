"""A mistake on the command line is one line before anything runs; `make launch-...` hands on what it is given."""

import subprocess

import pytest

from experiments.core.record.workdir import Workdir
from scripts.launch.code import ROOT

TPU = ["queued-resource", "mnist_pruning", "--name=tpu", "--zone=us-east1-d", "--type=v6e-8"]
LOCAL = ["local", "mnist_pruning", "--workdir=runs/none"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*LOCAL, "--processes=0"], "argument --processes: must be at least 1, got 0"),
        (["local", "nothing", "--workdir=a"], "'nothing' is not an experiment: there is no experiments/nothing"),
        ([*LOCAL, "--env=A"], "--env='A' is not of the form NAME=VALUE"),
        ([*LOCAL, "--", "--workdir=/a"], "override '--workdir=/a' is not of the form --config.FIELD=VALUE"),
        ([*LOCAL, "--compile_first"], "--compile_first is for TPUs: local names none to compile for"),
        ([*TPU, "--workdir=/a"], "--workdir=/a: queued-resource needs one in a bucket, gs://BUCKET/..."),
        ([*TPU, "--workdir=gs://b/r", "--commit=HEAD", "--config=/a.py"], "--config=/a.py: there is no such file in "),
        ([*LOCAL, "--", "--config.a=b\nc"], "override '--config.a=b\\nc' is not of the form --config.FIELD=VALUE, in "),
        ([*TPU, "--workdir=gs://b/r", "--name=My TPU"], "argument --name: must be at most 61 lower-case letters, "),
        (
            [*TPU, "--workdir=gs://b/r", "--zone=us-east1"],
            "argument --zone: must be a zone of Google Cloud, such as us-",
        ),
        (
            [*TPU, "--workdir=gs://b/r", "--create_flag=spot"],
            "argument --create_flag: must be an option that begins wi",
        ),
        ([*TPU, "--workdir=gs://b/r", "--data=/disk"], "argument --data: must be of the form gs://BUCKET/FOLDER, got "),
        (
            ["slurm", *LOCAL[1:], "--sbatch_flag=partition=gpu"],
            "argument --sbatch_flag: must be an option that begins ",
        ),
        ([*TPU, "--workdir=gs://b/r", "--type=x-1"], "--type=x-1 is not allowed: it must be of v4, v5litepod, v5p, "),
    ],
)
def test_a_mistake_is_one_line(launch, capfd, arguments, message):
    try:
        status, out, err = launch(*arguments)
        assert err.count("\n") == 1
    except SystemExit as exited:
        status, (out, err) = exited.code, capfd.readouterr()
    assert (status, out) == (2, "")
    assert f"error: {message}" in err.splitlines()[-1]


def test_a_bucket_out_of_reach_is_one_line(launch, monkeypatch):
    def unreached(workdir):
        raise ConnectionError("no route to\nstorage.googleapis.com")

    monkeypatch.setattr(Workdir, "is_done", unreached)
    status, out, err = launch("local", "mnist_pruning", "--workdir=gs://bucket/r", "--status")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "--workdir=gs://bucket/r" in err


def test_make_passes_overrides_verbatim(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/usr/bin/env bash\nprintf '%s\\0' \"$@\"\n")
    python.chmod(0o755)
    overrides = "--config.seeds=(0,1) --config.a='it is $(x) $HOME `y`'"
    variables = [f"BIN={tmp_path}", "READY=", "DATA=", "PLATFORM=tpu-vm", f"OVERRIDES={overrides}", "RUNS=elsewhere"]
    variables += ["EXPERIMENT=cifar100_vit", "LAUNCH=--sweep 'config.p=1,2' --name=a"]
    command = ["make", "--silent", "launch", *variables]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split("\0")[:-1] == [
        "-m",
        "scripts.launch",
        "tpu-vm",
        "cifar100_vit",
        "--config=configs/cifar100_vit.py",
        "--workdir=elsewhere/launch/cifar100_vit",
        f"--overrides={overrides}",
        "--sweep",
        "config.p=1,2",
        "--name=a",
    ]
