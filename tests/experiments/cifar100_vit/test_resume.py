"""The command line of the experiment killed in mid-training, and resumed: the rows of a run that was not."""

import os
import random
import signal
import sys
import time

import pytest

from experiments.cifar100_vit.suite.presets import DEMO
from experiments.core import metrics
from tests.experiments.cifar100_vit.tiny import write_weights
from tests.experiments.support import start

# The loss that takes most computing, and a network of one block, since nearly all the time is compilation.
VARIANT = "small,p=4/3,target=smooth"
FIELDS = {
    "loss.lam": 1.0,
    "model.depth": 1,
    "steps": 60,  # so many that the kill, however late this process comes to it, is in mid-training
    "steps_per_dispatch": 2,
    "eval_every": 6,
    "checkpoint_every": 4,
    "optimizer.warmup_steps": 4,
}
RESIDENT = {"input.recipe": "crop_flip", "seeds": (0, 1)}  # augmented on the device, two seeds at once
FSDP = {"mesh.data": 2, "mesh.fsdp": 4}
STREAM = {"input.recipe": "crop_flip", "feed": "stream", "input.augment_on": "host", "input.workers": 1}


def begin(workdir, devices, fields):
    """The command line of a run."""
    arguments = [sys.executable, "-m", "experiments.cifar100_vit", f"--workdir={workdir}"]
    arguments.append(f"--config=configs/cifar100_vit.py:{VARIANT}")
    arguments += [f"--config.{name}={value}" for name, value in (DEMO | fields).items()]
    return start(arguments, env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)})


def rows(workdir):
    """All that two runs may not differ in: everything but the times."""
    return [
        {name: value for name, value in row.items() if name not in ("seconds", "performance")}
        for row in metrics.read(workdir / "metrics.jsonl")
    ]


def kill_after(process, workdir, num_rows, seconds):
    """SIGKILL, so long after the run has written that many rows."""
    deadline = time.monotonic() + 300
    while len(metrics.read(workdir / "metrics.jsonl")) < num_rows:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(seconds)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (workdir / "summary.json").exists()


@pytest.mark.parametrize(
    ("devices", "fields"), [(1, RESIDENT), (8, RESIDENT | FSDP), (1, STREAM)], ids=["one", "eight", "stream"]
)
def test_killed_at_a_random_moment_and_resumed_it_has_the_same_rows(tmp_path, devices, fields):
    write_weights(tmp_path / "weights.npz", model__depth=1)
    fields = FIELDS | {"pretrained": str(tmp_path / "weights.npz")} | fields
    moment = random.Random(devices)
    killed = begin(tmp_path / "killed", devices, fields)
    kill_after(killed, tmp_path / "killed", moment.randint(2, 4), moment.uniform(0, 0.1))
    # As the command line, too: a process that has other devices may compile to code that rounds otherwise.
    whole = begin(tmp_path / "whole", devices, fields)
    resumed = begin(tmp_path / "killed", devices, fields)
    out, err = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, err
    assert whole.communicate(timeout=300)[1] == ""
    assert "resuming after step " in out
    expected = rows(tmp_path / "whole")
    assert [row["step"] for row in expected] == [*range(0, 61, 6)]
    losses = [tuple(row["train_loss"]) for row in expected[1:]]
    assert len(set(losses)) == len(losses)
    assert rows(tmp_path / "killed") == expected
