"""What cannot be run is refused on the launching side, before anything is created."""

import importlib
import subprocess
import threading

import pytest
from absl import flags

from experiments.core.cli import Command
from experiments.core.errors import UsageError
from scripts.launch import compile_first
from scripts.launch.check import tpu_devices, tpu_processes
from scripts.launch.process import Console
from tests.scripts.launch.conftest import commands

pytestmark = pytest.mark.filterwarnings(r"ignore:the load_module\(\) method:DeprecationWarning")  # of ml_collections
VMOE = ["queued-resource", "vmoe", "--config=configs/vmoe.py:router=hard", "--workdir=gs://bucket/runs/a"]
TPU = ["--name=tpu", "--zone=us-east1-d", "--type=v5p-16", "--poll_seconds=0.01", "--commit=HEAD"]


@pytest.fixture
def asked_here(monkeypatch):
    """Experiments are asked in this process, which has eight devices, too: to start one takes seconds."""
    ask, lock = Console.ask, threading.Lock()

    def asked(console, command, **options):
        if "--check" not in command:
            return ask(console, command, **options)
        module, *arguments = command[command.index("-m") + 1 :]
        recipe = importlib.import_module(f"{module}.experiment").RECIPE
        try:
            with lock:
                check = Command(recipe, flags.FlagValues(), [module, *arguments])
                check.parse()
                check.run()
        except UsageError as error:
            return subprocess.CompletedProcess(command, 2, "", f"error: {error}\n")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(Console, "ask", asked)


@pytest.mark.parametrize(
    ("type_", "devices"),
    [("v2-8", 8), ("v3-32", 32), ("v4-8", 4), ("v5litepod-16", 16), ("v5p-16", 8), ("v6e-4", 4), ("tpu7x-4x4x4", None)],
)
def test_devices_of_a_type(type_, devices):
    assert tpu_devices(type_) == devices


@pytest.mark.parametrize(("type_", "processes"), [("v2-8", 1), ("v4-32", 4), ("v5litepod-16", 4), ("v6e-8", 1)])
def test_processes_of_a_type(type_, processes):
    assert tpu_processes(type_) == processes


@pytest.mark.parametrize("platform", ["local", "queued-resource"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--", "--config.lam.stort=1"],
            "error: --config.lam.stort: the config has no field 'stort': did you mean start?",
        ),
        (["--", "--config.epochs=two"], "error: config.epochs='two' is not allowed: it must be an integer"),
        (["--", "--config.method=relaxd"], "error: config.method='relaxd' is not allowed: it must be one of "),
        (["--sweep=config.p=2,x"], "error: p=x: config.p='x' is not allowed: it must be a number"),
        (["--sweep=config.p=2,1"], "error: p=1: config.p=1.0 is not allowed: it must be in (1, 2]"),
        (["--sweep=config.q=2"], "error: q=2: --config.q: the config has no field 'q'"),
        (
            ["--config=configs/mnist_pruning.py:nothing"],
            "error: variant 'nothing' is not one of dense, hard",
        ),
    ],
)
def test_a_dry_run_prints_no_command_that_ends_in_a_mistake(world, launch, platform, options, message):
    where = ["--workdir=runs/none"] if platform == "local" else ["--workdir=gs://bucket/runs", *TPU]
    status, out, err = launch(platform, "mnist_pruning", *where, "--dry_run", *options, check=True)
    assert (status, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_a_dry_run_of_what_can_be_run_prints_its_commands_alone(world, launch):
    sweep = ["--workdir=runs/none", "--dry_run", "--sweep=config.seeds=range(2)", "--", "--config.mesh.data=2"]
    config = "--config=configs/cifar100_vit.py:small"
    status, out, err = launch("local", "cifar100_vit", config, *sweep, check=True)
    assert (status, err) == (0, "")
    assert [command[-2:] for command in commands(out)] == [
        ["--config.mesh.data=2", f"--config.seeds={seed}"] for seed in range(2)
    ]


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
def test_a_mistake_is_one_line_and_nothing_is_created(asked_here, world, launch, overrides, message):
    status, _, err = launch(*VMOE, *TPU, "--", *overrides, check=True)
    assert status == 2
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert world.recorded("calls") == []


def test_of_a_sweep_the_point_is_named(asked_here, world, launch):
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


def compiler_of(tmp_path, monkeypatch, status, *said):
    """In the place of `scripts.aot`, a program that notes its arguments, says something and ends so."""
    program = tmp_path / "python"
    noted = tmp_path / "arguments"
    lines = "\n".join(f"echo '{line}'" for line in said)
    program.write_text(f'#!/bin/sh\necho "$@" >> {noted}\n{lines}\nexit {status}\n')
    program.chmod(0o755)
    monkeypatch.setattr(compile_first, "python_with_compiler", lambda: str(program))
    return noted


def test_what_does_not_fit_is_refused_before_a_tpu_is_asked_for(asked_here, world, launch, tmp_path, monkeypatch):
    noted = compiler_of(tmp_path, monkeypatch, 3, "it does not fit", "what helps: --config.mesh.fsdp=N")
    status, out, err = launch(*VMOE, *TPU, "--compile_first", "--", "--config.mesh.expert=4")
    assert status == 2
    assert "what helps: --config.mesh.fsdp=N" in out
    assert err == "error: vmoe does not fit on v5p-16: see above for what to change\n"
    assert world.recorded("calls") == []
    assert noted.read_text() == (
        "-m scripts.aot vmoe --config=configs/vmoe.py:router=hard --type=v5p-16 --results=runs/compiled "
        "--no_evaluation -- --config.mesh.expert=4\n"
    )


def test_what_cannot_be_compiled_is_said_and_what_fits_is_launched(asked_here, world, launch, tmp_path, monkeypatch):
    compiler_of(tmp_path, monkeypatch, 2, "error: --type=v5p-16 needs the package libtpu")
    status, _, err = launch(*VMOE, *TPU, "--compile_first")
    assert (status, world.recorded("calls")) == (2, [])
    assert err == "error: vmoe could not be compiled for v5p-16: --type=v5p-16 needs the package libtpu\n"
    compiler_of(tmp_path, monkeypatch, 0, "train: fits on v5p-16")
    _, out, _ = launch(*VMOE, *TPU, "--compile_first", "--retries=0")
    assert "train: fits on v5p-16" in out
    assert world.recorded("calls")


def test_to_compile_first_takes_a_type(launch, tmp_path):
    status, _, err = launch("local", "mnist_pruning", f"--workdir={tmp_path}", "--compile_first")
    assert status == 2
    assert err.startswith("error: --compile_first is for tpu-vm, queued-resource, gke: local names no TPU")
