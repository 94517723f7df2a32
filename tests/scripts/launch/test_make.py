"""`make launch-mnist` and its like hand on what they are given."""

import subprocess

import pytest

from scripts.launch.code import ROOT


@pytest.mark.parametrize(
    ("target", "experiment"), [("mnist", "mnist_pruning"), ("cifar100", "cifar100_vit"), ("vmoe", "vmoe")]
)
def test_overrides_arrive_as_they_are_given(tmp_path, target, experiment):
    python = tmp_path / "python"
    python.write_text("#!/usr/bin/env bash\nprintf '%s\\0' \"$@\"\n")
    python.chmod(0o755)
    overrides = "--config.seeds=(0,1) --config.a='it is $(x) $HOME `y`'"
    variables = [f"BIN={tmp_path}", "READY=", "PLATFORM=tpu-vm", f"OVERRIDES={overrides}", "RUNS=elsewhere"]
    done = subprocess.run(
        ["make", "--silent", f"launch-{target}", *variables, "LAUNCH=--sweep 'config.p=1,2' --name=a"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\0")[:-1] == [
        *("-m", "scripts.launch", "tpu-vm", experiment, f"--config=configs/{experiment}.py"),
        *(f"--workdir=elsewhere/launch/{experiment}", f"--overrides={overrides}"),
        *("--sweep", "config.p=1,2", "--name=a"),
    ]
