"""The command line of the experiment killed in mid-training, and resumed: the rows of a run that was not."""

import random

import pytest

from experiments.cifar100_vit.suite.presets import DEMO
from tests.experiments.cifar100_vit.tiny import write_weights
from tests.experiments.processes import assert_killed, begin, finish
from tests.experiments.support import rows_without_seconds

# The loss that takes most computing, and a network of one block, since nearly all the time is compilation.
MODULE, CONFIG = "experiments.cifar100_vit", "configs/cifar100_vit.py:small,p=4/3,target=smooth"
FIELDS = {
    "loss.lam": 1.0,
    "model.depth": 1,
    "steps": 24,
    "steps_per_dispatch": 2,
    "eval_every": 6,
    "checkpoint_every": 4,
    "optimizer.warmup_steps": 4,
}
RESIDENT = {"input.recipe": "crop_flip", "seeds": (0, 1)}  # augmented on the device, two seeds at once
FSDP = {"mesh.data": 2, "mesh.fsdp": 4}
STREAM = {"input.recipe": "crop_flip", "feed": "stream", "input.augment_on": "host", "input.workers": 1}


def start(workdir, devices, fields, kill_at=None):
    return begin(MODULE, CONFIG, workdir, DEMO | fields, devices=devices, kill_at=kill_at)


@pytest.mark.parametrize(
    ("devices", "fields"), [(1, RESIDENT), (8, RESIDENT | FSDP), (1, STREAM)], ids=["one", "eight", "stream"]
)
def test_killed_at_a_random_moment_and_resumed_it_has_the_same_rows(tmp_path, devices, fields):
    write_weights(tmp_path / "weights.npz", model__depth=1)
    fields = FIELDS | {"pretrained": str(tmp_path / "weights.npz")} | fields
    moment = random.Random(devices)
    kill_at = (moment.randint(2, 3), moment.uniform(0, 0.05))
    assert_killed(start(tmp_path / "killed", devices, fields, kill_at), tmp_path / "killed")
    # As the command line, too: a process that has other devices may compile to code that rounds otherwise.
    whole = start(tmp_path / "whole", devices, fields)
    resumed = start(tmp_path / "killed", devices, fields)
    _, out = finish(whole + resumed)
    assert "resuming after step " in out
    expected = rows_without_seconds(tmp_path / "whole")
    assert [row["step"] for row in expected] == [*range(0, 25, 6)]
    losses = [tuple(row["train_loss"]) for row in expected[1:]]
    assert len(set(losses)) == len(losses)
    assert rows_without_seconds(tmp_path / "killed") == expected
