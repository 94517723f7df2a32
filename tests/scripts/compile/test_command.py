"""Mistakes are one line, before anything is compiled; and the whole way for the CPU's compiler."""

import json
import subprocess

import jax
import pytest

from configs import cifar100_vit, mnist_pruning, vmoe
from experiments.core.errors import UsageError
from experiments.core.record import chips
from scripts.compile import check, command, compiled, compiler, step

pytestmark = pytest.mark.filterwarnings(r"ignore:the load_module\(\) method:DeprecationWarning")  # of ml_collections
VMOE = ["vmoe", "--config=configs/vmoe.py:small", "--type=v5litepod-4"]
DIGITS = ["--config.dataset=digits", "--config.epochs=2", "--config.seeds=(0,)", "--config.hidden=(16,)"]
DIGITS += ["--config.prune_layers=(1,)", "--config.checkpoint_every=2", "--config.optimizer.learning_rate=0.1"]
MNIST = ["mnist_pruning", "--config=configs/mnist_pruning.py:dense", "--type=v5litepod-1"]


@pytest.fixture
def here(monkeypatch, tmp_path):
    """The devices of this machine in the place of a slice's, and what was compiled in a directory of its own."""
    monkeypatch.setattr(compiler, "other_python", lambda platform: None)
    monkeypatch.setattr(compiler, "prepare", lambda slice_: None)
    monkeypatch.setattr(compiler, "devices", lambda slice_: jax.devices()[: slice_.count])
    monkeypatch.setattr(compiler, "versions", lambda platform: {"jax": jax.__version__})
    monkeypatch.setattr(compiled, "KEPT", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vmoe"], "--type is required, for example --type=v5litepod-16"),
        (["nothing", "--type=v5e"], "'nothing' is not an experiment: experiments.nothing.experiment has no RECIPE"),
        (["vmoe", "--type=v5e", "--config=configs/none.py"], "--config=configs/none.py: there is no such file"),
        ([*VMOE, "--config.moe.expert=3"], "--config.moe.expert: the config has no field 'expert'"),
        ([*VMOE, "--config.mesh.expert=3"], "config.mesh="),
        (["operators", "--type=v5e", "--only=topk"], "unexpected argument '--only=topk' of operators"),
        (["check", "--type=v7"], "--type=v7 is not allowed: it must be one of "),
    ],
)
def test_mistakes(here, arguments, message):
    with pytest.raises(UsageError) as error:
        command.main(arguments)
    assert str(error.value).removeprefix("--").startswith(message.removeprefix("--"))


def test_a_package_that_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(compiler, "available", lambda platform: False)
    monkeypatch.setattr(compiler, "ROOT", tmp_path)  # without environments
    said = "--type=h200-1 needs the package jax-cuda13-plugin.*make install VENV=.venv-cuda13 JAX=cuda13"
    with pytest.raises(UsageError, match=said):
        command.main(["mnist_pruning", "--type=h200-1"])


def test_python_with_compiler_is_called(monkeypatch):
    asked = []
    monkeypatch.setattr(compiler, "other_python", lambda platform: f"/{platform}/python")
    monkeypatch.setattr(subprocess, "call", lambda arguments: asked.append(arguments) or 3)
    assert command.main([*VMOE, "--config.steps=1"]) == 3
    assert asked == [["/tpu/python", "-m", "scripts.compile", *VMOE, "--config.steps=1"]]


def test_from_the_command_to_the_lines(here, capsys):
    """The CPU's compiler, under the name of a TPU."""
    assert command.main([*MNIST, *DIGITS]) == 0
    out = capsys.readouterr().out
    assert "train: fits: a device needs " in out
    assert "evaluation: fits: a device needs " in out
    # 1438 digits of 64 pixels in 11 batches of 128, forwards and twice backwards, but for the pixels' own gradient.
    assert f"on a device: {11 * 128 * 2 * (2 * 64 * 16 + 3 * 16 * 10):.4g}, which take" in out
    assert command.main([*MNIST, *DIGITS, "--json", "--no_evaluation"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["operations"] == 11 * 128 * 2 * (2 * 64 * 16 + 3 * 16 * 10)
    assert found["state"] == 4 * (64 * 16 + 16 + 16 * 10 + 10) + 1  # plain SGD; and whether the seed has diverged


def test_a_step_that_does_not_fit(here, capsys, monkeypatch):
    largest = {"shape": "f32[4096,4096]", "bytes": 2**26, "source": "jit(train)/dot"}
    refused = {"fits": False, "needed": 20e9, "available": 16e9, "largest": [largest]}
    monkeypatch.setattr(compiled, "outcome", lambda lowered, slice_: dict(refused))
    assert command.main([*MNIST, "--no_evaluation", *DIGITS]) == command.DOES_NOT_FIT
    out = capsys.readouterr().out
    assert "train: DOES NOT FIT: a device needs 20.00 GB of 16.00 GB" in out
    assert "67.11 MB  f32[4096,4096]  jit(train)/dot" in out
    assert "what helps: --config.batch_size below 128" in out


def test_what_helps_is_what_the_config_has():
    config = vmoe.get_config()
    config.mesh = {"data": 16, "fsdp": 1, "expert": 1}
    found = "; ".join(step.changes(config, state_bytes=1e9, available=16e9))
    for field in ("mesh.expert=N", "mesh.fsdp=N", "model.remat=True", "accumulate=2", "batch_size below 4096"):
        assert f"--config.{field}" in found
    # Parameters that take most of the memory are to be divided first.
    assert step.changes(config, state_bytes=15e9, available=16e9)[0].startswith("--config.mesh.fsdp")
    config = cifar100_vit.get_config()  # computes activations again already, and has no experts
    config.mesh = {"data": 16}
    found = "; ".join(step.changes(config, 1e9, 16e9))
    assert "remat" not in found
    assert "expert" not in found
    found = step.changes(mnist_pruning.get_config("relaxed"), 1e9, 16e9)
    assert found == ["--config.batch_size below 128", "a type with more devices"]


def test_check_steps_have_valid_configs():
    for each in check.STEPS:
        experiment, config, *overrides = each.arguments
        for type_ in (*each.fits, *each.too_large):
            step.run_of(experiment, config.removeprefix("--config="), overrides, chips.parse(type_))


def test_check_prints_table_and_failures(monkeypatch, capsys):
    fine = {"fits": True, "needed": 2e9, "available": 16e9}
    rows = {
        "operators": [fine | {"program": "topk_mask (8, 16)", "warnings": []}],
        "cifar100_vit": [fine],
        "vmoe": [fine | {"fits": False}],
    }

    class Process(subprocess.Popen):
        def __init__(self, arguments, **options):
            lines = "\n".join(map(json.dumps, rows[arguments[3]]))
            super().__init__(["echo", lines], **options)

    monkeypatch.setattr(check.subprocess, "Popen", Process)
    chosen = [one for one in check.STEPS if one.name in ("ViT-B/16 top-3", "V-MoE B/16 relaxed")]
    monkeypatch.setattr(check, "STEPS", [chosen[0], chosen[1]._replace(fits=())])
    assert check.go(["v5e"]) == 0  # what should not fit does not
    out = capsys.readouterr().out
    assert "| program | TPU v5e |" in out
    assert "| topk_mask (8, 16) | 2.00 GB |" in out
    assert "| ViT-B/16 top-3, 16 devices | 2.00 GB |" in out
    assert "| V-MoE B/16 relaxed, 8 devices | does not fit: 2.00 GB of 16.00 GB |" in out
    rows["vmoe"] = [fine]
    rows["operators"] = [{"program": "topk_mask (8, 16)", "error": "Refused: no", "warnings": []}]
    assert check.go(["v5e"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "FAILED: topk_mask (8, 16) for v5e: Refused: no",
        "FAILED: V-MoE B/16 relaxed, 8 devices for v5litepod-8: 2.00 GB",
    ]
