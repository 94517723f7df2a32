"""What cannot be run is refused on the launching side, before anything is created."""

import pytest

from scripts.launch.check import tpu_devices, tpu_processes
from tests.scripts.launch.conftest import commands

VMOE = ["queued-resource", "vmoe", "--config=configs/vmoe.py:router=hard", "--workdir=gs://bucket/runs/a"]
TPU = ["--name=tpu", "--zone=us-east1-d", "--type=v5p-16", "--poll_seconds=0.01", "--commit=HEAD"]


@pytest.mark.parametrize(
    ("type_", "devices"),
    [("v2-8", 8), ("v3-32", 32), ("v4-8", 4), ("v5litepod-16", 16), ("v5p-16", 8), ("v6e-4", 4), ("tpu7x-4x4x4", None)],
)
def test_devices_of_a_type(type_, devices):
    assert tpu_devices(type_) == devices


@pytest.mark.parametrize(("type_", "processes"), [("v2-8", 1), ("v4-32", 4), ("v5litepod-16", 4), ("v6e-8", 1)])
def test_processes_of_a_type(type_, processes):
    assert tpu_processes(type_) == processes


def test_that_nothing_could_be_checked_is_said(world, launch):
    options = ["--name=tpu", "--zone=z", "--type=tpu7x-8", "--runtime_version=v", "--commit=HEAD", "--retries=0"]
    world.plan("queued-resources-describe", "ERROR: a reason")
    status, out, _ = launch(*VMOE, *options, check=True)
    assert status == 1
    assert "not checked before it is run" in out


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--config.router.kay=3"], "error: --config.router.kay: the config has no field 'kay'"),
        (["--config.mesh.expert=3"], "error: config.mesh={'data': -1, 'expert': 3, 'fsdp': 1} is not allowed: "),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_created(world, launch, overrides, message):
    status, _, err = launch(*VMOE, *TPU, "--", *overrides, check=True)
    assert status == 2
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert world.recorded("calls") == []


def test_of_a_sweep_the_point_is_named(world, launch):
    status, _, err = launch(*VMOE, *TPU, "--sweep=config.router.k=28,401", check=True)
    assert status == 2
    assert err == "error: k=401: config.router.k=401 is not allowed: it must be at most the 400 tokens of a group\n"
    assert world.recorded("calls") == []


def test_what_can_be_run_is_launched_though_there_is_no_accelerator_here(world, launch):
    _, printed, _ = launch(*VMOE, *TPU, "--dry_run", check=True)
    asked = commands(printed)[0]
    assert asked[:3] == ["env", "JAX_PLATFORMS=cpu", "JAX_NUM_CPU_DEVICES=8"]
    assert asked[-2:] == ["--check", "--check_processes=2"]
    status, out, err = launch(*VMOE, *TPU, check=True)
    assert (status, err) == (0, "")
    assert "checking what is to be run, for 8 devices" in out
