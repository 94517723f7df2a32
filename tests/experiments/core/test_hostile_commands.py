"""Command lines that no run can come of: each is one line that names what is wrong, and leaves nothing behind.

All in this process, by the code that the command runs, and up to where a run would begin to train.
"""

import importlib
import re
from pathlib import Path

import pytest

from experiments.core import cli
from experiments.core.errors import UsageError
from experiments.core.training import train

MNIST = ["mnist_pruning", "--config=configs/mnist_pruning.py", "--config.dataset=digits"]
VIT = ["cifar100_vit", "--config=configs/cifar100_vit.py:small", "--config.dataset=digits", "--config.input.size=8"]
VIT += ["--config.model.variant=mu/4", "--config.mesh.data=8", "--config.eval_batch_size=512"]
VMOE = ["vmoe", "--config=configs/vmoe.py:small", "--config.dataset=digits", "--config.input.size=8"]
VMOE += ["--config.model.variant=mu/2", "--config.mesh.data=8"]

# Fields, and values that each of them must not have. What no number may be is refused of all fields in one place, and
# tried with the first two.
FIELDS = {
    "mnist": (
        MNIST,
        {
            "optimizer.learning_rate": ("inf", "nan", "-1", "1e39", "1e-60", "many", "0"),
            "epochs": ("0", "-1", "2147483648", "1e3", "", "1000000000"),
            "optimizer.momentum": ("1", "-0.1"),
            "density": ("0", "1.1", "1e-3"),
            "p": ("1", "2.1"),
            "lam.start": ("-1", "0"),
            "lam.end": ("0",),
            "lam.schedule": ("", "cosine"),
            "hard_after": ("0", "1.1"),
            "budget": ("", "layer"),
            "density_schedule.name": ("", "cubic?"),
            "density_schedule.end": ("0", "1.1"),
            "density_schedule.every": ("0",),
            "rigl.drop": ("0", "2"),
            "topkast.backward_density": ("0", "2"),
            "str.weight_decay": ("-1",),
            "inputs": ("nothing",),
            "initialisation": ("nothing",),
            "form": ("nothing",),
            "ot.epsilon": ("0",),
            "mask.strength": ("0",),
            "mask.num_samples": ("0", "1.5"),
            "hard_concrete.damping": ("0",),
            "batch_size": ("0", "5000"),
            "checkpoint_every": ("0",),
            "validation_size": ("0",),
            "dataset": ("None",),
            "seeds": ("()", "(", "a", "(1,1)", "(-1,)", "(1.5,)", "(True,)", "(None,)", "{1,2}", "{}", "(2147483648,)"),
            "hidden": ("('a',)", "(0,)", "(True,)", "((1,),)", "(1.5,)", "0"),
            "prune_layers": ("()", "(4,)", "(1,1)", "(True,)", "('1',)"),
            "method": ("", "magic"),
            "split": ("", "training"),
            "mask.name": ("nothing",),
            "optimizer.name": ("sgdd",),
            "debias": ("2", "maybe"),
        },
    ),
    "vit": (
        VIT,
        {
            "loss.k": ("0", "11", "1.5"),
            "loss.p": ("1",),
            "loss.lam": ("-1",),
            "loss.target": ("nothing",),
            "loss.name": ("nothing",),
            "steps": ("0", "55"),
            "eval_every": ("0", "3"),
            "accumulate": ("0", "3"),
            "eval_batch_size": ("0", "12"),
            "optimizer.warmup_steps": ("-1", "100"),
            "optimizer.clip_norm": ("-1",),
            "optimizer.schedule": ("step",),
            "pretrained": ("nothing", ".", "/dev/null"),
            "model.variant": ("", "Huge/4", "mu/0", "mu"),
            "model.depth": ("-1", "100000"),
            "model.num_heads": ("3",),
            "model.dtype": ("float8",),
            "input.size": ("0", "7", "1000000"),
            "input.recipe": ("", "colour", "big_vision"),
            "input.augment_on": ("moon",),
            "mesh.data": ("0", "-2", "7"),
            "label": ("colour",),
            "accelerator": ("True",),
        },
    ),
    "vmoe": (
        VMOE,
        {
            "router.factor": ("0",),
            "router.k": ("-1", "1000"),
            "router.capacity": ("-1", "1000", "3"),
            "router.multiple_of": ("0",),
            "router.noise": ("-1",),
            "router.p": ("3",),
            "router.lam.start": ("0",),
            "router.limit": ("0",),
            "router.hard_after": ("0", "1.1"),
            "router.name": ("",),
            "router.priority": ("gate",),
            "moe.blocks": ("(1,1)", "(9,)", "('a',)", "(True,)"),
            "moe.num_experts": ("0",),
            "moe.group_images": ("0", "7"),
            "moe.dispatcher": ("none",),
            "loss": ("hinge",),
            "optimizer.b2": ("1",),
            "optimizer.weight_decay": ("-1",),
            "input.workers": ("-1", "100000"),
            "input.prefetch": ("0",),
            "model.variant": ("S-32",),
        },
    ),
}
# Where the field that is named is another, which the one given does not go with, or is named less its last part.
NAMED = {
    "loss.": "config.loss",
    "mesh.data": "config.mesh",
    "moe.group_images=7": "config.batch_size",
    "accumulate=3": "config.batch_size",
}
OTHERS = [
    # Overrides that are of no field, or of one with fields of its own.
    ([*MNIST, "--config.lam=1"], "--config.lam: .* config.lam.schedule, config.lam.start"),
    (
        [*MNIST, "--config.lam.strt=3"],
        "--config.lam.strt: .* no field 'strt': did you mean config.lam.start",
    ),
    ([*MNIST, "--config.seeds.x=3"], "--config.seeds.x: the config has no field 'x'"),
    ([*MNIST, "--config.=3"], "--config.: the config has no field ''"),
    ([*MNIST, "--config.epochs"], "config.epochs=''"),
    # Files that are no config, or one of another experiment.
    (["mnist_pruning"], "--config is required"),
    (["mnist_pruning", "--config=no\x1b[2Jwhere.py"], r"--config=no\\x1b\[2Jwhere.py: there is no such file"),
    (["mnist_pruning", "--config=configs"], "--config=configs: there is no such file"),
    (["mnist_pruning", "--config=README.md"], r"--config=README.md .* SyntaxError: .* line \d+"),
    (["mnist_pruning", "--config=results/vmoe/figures/figure7.png"], "figure7.png cannot be read"),
    (["mnist_pruning", "--config=experiments/core/training/feed.py"], "KeyError: 'get_config'"),
    (["mnist_pruning", "--config=configs/mnist_pruning.py:magic"], "'magic' is not one of dense, "),
    (["mnist_pruning", "--config=configs/vmoe.py:small"], "no field 'method', which experiments.mnist_pruning reads"),
    # Other options.
    ([*MNIST, "--workdir="], "--workdir is required"),
    ([*MNIST, "--workdir=s3://bucket/run"], "--workdir=s3://bucket/run is neither"),
    ([*MNIST, "--workdir=gs:///runs/x"], "--workdir=gs:///runs/x is neither"),
    ([*MNIST, "--workdir=README.md/run"], "--workdir=.*README.md/run: Not a directory"),
    ([*MNIST, "--speed=11"], "--speed=11"),
    ([*MNIST, "stray"], "stray"),
    ([*VMOE, "--config.router.name=token_choice", "--config.router.selected=99"], "config.router.selected=99 "),
    (
        [
            *VIT,
            "--config.input.augment_on=host",
            "--config.input.recipe=none",
            "--config.seeds=(0,1)",
        ],
        "config.seeds=.* single",
    ),
    (["mnist_pruning", MNIST[1], "--config.data_dir=gs://bucket/tfds"], "config.data_dir='gs://bucket/tfds'.* gcsfuse"),
    (
        ["mnist_pruning", MNIST[1], "--config.dataset=kmnist", "--config.download=False", "--config.data_dir=/nowhere"],
        r"kmnist.* /nowhere.*docs/how_to/data\.md",
    ),
]


class Begun(Exception):
    """A run would train now."""


@pytest.fixture(autouse=True)
def never_train(monkeypatch):
    def begin(*arguments):
        raise Begun

    monkeypatch.setattr(train, "train", begin)


def run(tmp_path: Path, command: list[str]) -> None:
    """Runs a command line: an experiment and its flags."""
    name, *given = command
    workdir = [] if any(flag.startswith("--workdir") for flag in given) else [f"--workdir={tmp_path / 'run'}"]
    recipe = importlib.import_module(f"experiments.{name}.experiment").RECIPE
    cli.run(recipe, [*workdir, *given])


def refused(tmp_path: Path, command: list[str]) -> str:
    """The line that a command line is refused with."""
    with pytest.raises(UsageError) as error:
        run(tmp_path, command)
    assert list(tmp_path.iterdir()) == []
    assert "\n" not in str(error.value)
    return str(error.value)


# Methods by the section that they alone read.
METHODS = {
    "rigl": "rigl",
    "topkast": "topkast",
    "str": "str",
    "hard_concrete": "hard_concrete",
    "ot": "ot_straight_through",
    "mask": "mask_straight_through",
}


def reading(base: list[str], field: str) -> list[str]:
    """The command with the variant that reads the field."""
    method = METHODS.get(field.partition(".")[0])
    return [base[0], f"{base[1]}:{method}", *base[2:]] if method else base


CASES = [
    (reading(base, field), field, value)
    for base, fields in FIELDS.values()
    for field, values in fields.items()
    for value in values
]


@pytest.mark.parametrize(("base", "field", "value"), CASES, ids=[f"{b[0]}-{f}={v}" for b, f, v in CASES])
def test_impossible_values_name_the_field(tmp_path, base, field, value):
    said = refused(tmp_path, [*base, f"--config.{field}={value}"])
    given = f"{field}={value}"
    named = next((named for start, named in NAMED.items() if given.startswith(start)), f"config.{field}=")
    assert said.startswith((named, f"--{named}")), said
    assert any(word in said for word in ("must be", "not one of", "is not a file", "cannot be read", "needs")), said


@pytest.mark.parametrize(("command", "message"), OTHERS, ids=[" ".join(command) for command, _ in OTHERS])
def test_impossible_commands_are_one_line(tmp_path, command, message):
    said = refused(tmp_path, command)
    assert re.search(message, said), said


@pytest.mark.parametrize("command", [MNIST, VIT, VMOE], ids=lambda command: command[0])
def test_the_bases_could_be_run(tmp_path, command):
    with pytest.raises(Begun):
        run(tmp_path, command)
