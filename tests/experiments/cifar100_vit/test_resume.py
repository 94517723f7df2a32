"""The experiment killed in mid-training, or left as by a kill, and resumed: the rows of a run that was not."""

import random
import shutil

import pytest

from configs.cifar100_vit import get_config
from experiments.cifar100_vit.experiment import RECIPE
from experiments.cifar100_vit.suite import DEMO
from experiments.core.training import train
from tests.experiments.cifar100_vit.tiny import write_weights
from tests.experiments.processes import assert_killed, begin
from tests.experiments.support import rows_without_seconds

# A network of one block and the simplest loss, since nearly all the time is compilation.
VARIANT = "small,loss=xent"
FIELDS = DEMO | {
    "model.depth": 1,
    "steps": 12,
    "steps_per_dispatch": 2,
    "eval_every": 4,
    "checkpoint_every": 6,
    "optimizer.warmup_steps": 4,
    "mesh.data": 2,
    "mesh.fsdp": 4,
    "input.recipe": "crop_flip",
}
RESIDENT = {"seeds": (0, 1)}  # augmented on the device, two seeds at once
STREAM = {"feed": "stream", "input.augment_on": "host", "input.workers": 1}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "weights.npz"
    write_weights(path, model__depth=1)
    return {"pretrained": str(path)}


def run(workdir, fields):
    config = get_config(VARIANT)
    config.update_from_flattened_dict(fields)
    train.run(RECIPE, config, workdir)


def assert_same(resumed, whole):
    expected = rows_without_seconds(whole)
    assert [row["step"] for row in expected] == [0, 4, 8, 12]
    losses = [tuple(row["train_loss"]) for row in expected[1:]]
    assert len(set(losses)) == len(losses)
    assert rows_without_seconds(resumed) == expected


def test_killed_at_a_random_moment_and_resumed_it_has_the_same_rows(tmp_path, weights, capsys):
    """Of the command line, with eight devices as this process has, fed by another process."""
    fields, killed = FIELDS | STREAM | weights, tmp_path / "killed"
    kill_at = (3, random.Random(0).uniform(0, 0.02))
    config = f"configs/cifar100_vit.py:{VARIANT}"
    assert_killed(begin("experiments.cifar100_vit", config, killed, fields, devices=8, kill_at=kill_at), killed)
    run(killed, fields)
    assert "resuming after step 6" in capsys.readouterr().out
    run(tmp_path / "whole", fields | {"input.workers": 0})  # which the numbers are not to depend on
    assert_same(killed, tmp_path / "whole")


def test_two_seeds_augmented_on_the_device_go_on_to_the_same_rows(tmp_path, weights, capsys):
    fields, whole, left = FIELDS | RESIDENT | weights, tmp_path / "whole", tmp_path / "left"
    run(whole, fields)
    # As a kill before the last checkpoint would leave it.
    shutil.copytree(whole, left)
    (left / "summary.json").unlink()
    shutil.rmtree(left / "checkpoints" / "12")
    run(left, fields)
    assert "resuming after step 6" in capsys.readouterr().out
    assert_same(left, whole)
