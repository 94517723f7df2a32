"""Checkpoints that are not as they were saved: whatever is done to the newest one, the one before it is restored."""

import random
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from experiments.core.errors import UsageError
from experiments.core.training import checkpoint
from experiments.core.training.checkpoint import Checkpoints
from experiments.core.training.recorder import MetricsSinceRow


def state_of(step):
    return {"w": jnp.arange(2000, dtype=jnp.float32).reshape(40, 50) + step, "b": jnp.float32(step)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Three saves, of which the last two are kept."""
    directory = tmp_path_factory.mktemp("run") / "checkpoints"
    checkpoints = Checkpoints(directory)
    for step in (10, 20, 30):
        since_row = MetricsSinceRow({"loss": np.full((1, 2), step, np.float32)}, seconds=float(step))
        checkpoints.save(step, state_of(step), since_row)
    assert sorted(path.name for path in directory.iterdir()) == ["20", "30"]
    return directory


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run" / "checkpoints")


def restored(directory):
    """The step of the newest checkpoint that is intact, which is restored, and those of damaged ones."""
    _, damaged = checkpoint.find(directory)
    step, state, since_row = Checkpoints(directory).restore(state_of(0))
    assert since_row.seconds == step
    jax.tree.map(np.testing.assert_array_equal, state, state_of(step))
    return step, [other for other, _ in damaged]


def files(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file())


def flip(path, place, mask=1):
    content = bytearray(path.read_bytes())
    content[place] ^= mask
    path.write_bytes(content)


def test_newest_checkpoint_is_restored(saved, tmp_path):
    assert restored(saved) == (30, [])
    assert checkpoint.find(tmp_path) == checkpoint.find(tmp_path / "nowhere") == (None, [])


def test_any_change_to_a_file_is_noticed(copy):
    """Runs with such checkpoints are in `test_damaged_runs.py`."""
    rng = random.Random(0)
    for path in files(copy / "30"):
        content = path.read_bytes()
        places = [rng.randrange(len(content))] if content else []
        flipped = [content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :] for place in places]
        for damaged in (None, content + b"\0", *flipped):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            assert [step for step, _ in checkpoint.find(copy)[1]] == [30]
            path.write_bytes(content)
    (copy / "30" / "more").touch()
    assert restored(copy) == (20, [30])


def test_no_intact_checkpoint_is_refused(copy):
    for step in ("20", "30"):
        flip(copy / step / "since_row" / "data.json", 20)
    before = {path: path.read_bytes() for path in files(copy.parent)}
    with pytest.raises(UsageError, match=r"is intact \(30: its files are not those .*; 20: its files"):
        checkpoint.find(copy)
    assert before == {path: path.read_bytes() for path in files(copy.parent)}


def test_set_aside_step_can_be_saved_again(copy):
    flip(copy / "30" / "state" / "_METADATA", 9)
    damaged = (copy / "30" / "state" / "_METADATA").read_bytes()
    assert checkpoint.set_aside(copy, 30) == copy.parent / "damaged-checkpoint-30"
    since_row = MetricsSinceRow({"loss": np.zeros((1, 0), np.float32)}, seconds=30.0)
    Checkpoints(copy).save(30, state_of(30), since_row)
    assert restored(copy) == (30, [])
    assert (copy.parent / "damaged-checkpoint-30" / "state" / "_METADATA").read_bytes() == damaged
    assert checkpoint.set_aside(copy, 30).name == "damaged-checkpoint-30-2"


def test_what_a_killed_save_left_is_removed(copy):
    for name in ("40.orbax-checkpoint-tmp", "notes"):
        (copy / name / "state").mkdir(parents=True)
    assert Checkpoints(copy).clear() == []
    assert sorted(path.name for path in copy.iterdir()) == ["20", "30", "notes"]


def test_older_checkpoint_format_is_restored(tmp_path):
    since_row = MetricsSinceRow({"loss": np.ones((1, 2), np.float32)}, seconds=2.0)
    beside = {"since_row": since_row.to_json(), "config": {"steps": 9}, "data": "digits"}
    parts = {"state": ocp.args.StandardSave(state_of(5)), "since_row": ocp.args.JsonSave(beside)}
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(5, args=ocp.args.Composite(**parts))
    (tmp_path / "5" / checkpoint.CHECKSUM).write_text(checkpoint._checksum(tmp_path / "5"))
    step, state, found = Checkpoints(tmp_path, {"steps": 9}, "digits").restore(state_of(0))
    assert step == 5
    assert found.to_json() == since_row.to_json()
    jax.tree.map(np.testing.assert_array_equal, state, state_of(5))
