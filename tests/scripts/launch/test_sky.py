"""The file for SkyPilot: its shell command starts the training command, alone or with other nodes."""

import subprocess

import pytest
import yaml

from experiments.core.training.guard import _VARIABLES
from scripts.launch.code import ROOT

TASK = yaml.safe_load((ROOT / "scripts/launch/sky.yaml").read_text())
NODES = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NODE_RANK": "1"}


@pytest.mark.parametrize(("nodes", "address"), [(1, ["", "", ""]), (2, ["10.0.0.1:8476", "2", "1"])])
def test_its_command_is_the_training_command(tmp_path, nodes, address):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python = tmp_path / ".venv/bin/python"
    variables = " ".join(f'"${name}"' for name in _VARIABLES)
    python.write_text(f"#!/bin/sh\nprintf '%s\\n' {variables} \"$@\"\n")
    python.chmod(0o755)
    given = {"EXPERIMENT": "vmoe", "WORKDIR": "gs://b/r", "OVERRIDES": "--config.a=1 --config.b=2"}
    environment = TASK["envs"] | given | NODES | {"SKYPILOT_NUM_NODES": str(nodes), "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(["bash", "-c", TASK["run"]], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.stdout.split("\n")[:-1] == [
        *address,
        "-m",
        "experiments.vmoe",
        "--config=configs/vmoe.py",
        "--workdir=gs://b/r",
        "--config.a=1",
        "--config.b=2",
    ]


def test_only_workdir_must_be_given():
    assert [name for name, value in TASK["envs"].items() if value is None] == ["WORKDIR"]
    assert TASK["setup"].split()[:2] == ["bash", "scripts/launch/install.sh"]
