"""The experiment killed in mid-training and resumed: the rows of a run that was not."""

import random

import pytest

from configs.cifar100_vit import get_config
from experiments.cifar100_vit.experiment import RECIPE
from experiments.cifar100_vit.suite import DEMO
from experiments.core.training import train
from tests.experiments.cifar100_vit.tiny import write_weights
from tests.experiments.processes import assert_killed, begin
from tests.experiments.support import rows_without_seconds

pytestmark = pytest.mark.chaos

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
    "feed": "stream",
    "input.augment_on": "host",
    "input.workers": 1,
}


def run(workdir, fields):
    config = get_config(VARIANT)
    config.update_from_flattened_dict(fields)
    train.run(RECIPE, config, workdir)


def test_killed_at_a_random_moment_and_resumed_it_has_the_same_rows(tmp_path, capsys):
    """The command line's run, with eight devices as this process has, fed by another process."""
    write_weights(tmp_path / "weights.npz", model__depth=1)
    fields, killed = FIELDS | {"pretrained": str(tmp_path / "weights.npz")}, tmp_path / "killed"
    kill_at = (3, random.Random(0).uniform(0, 0.02))
    config = f"configs/cifar100_vit.py:{VARIANT}"
    assert_killed(begin("experiments.cifar100_vit", config, killed, fields, devices=8, kill_at=kill_at), killed)
    run(killed, fields)
    assert "resuming after step 6" in capsys.readouterr().out
    run(tmp_path / "whole", fields | {"input.workers": 0})  # which the numbers are not to depend on
    expected = rows_without_seconds(tmp_path / "whole")
    assert [row["step"] for row in expected] == [0, 4, 8, 12]
    assert len({tuple(row["train_loss"]) for row in expected[1:]}) == 3
    assert rows_without_seconds(killed) == expected
