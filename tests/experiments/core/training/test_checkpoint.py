"""Checkpoints that are not as they were saved: whatever is done to the newest one, the one before it is restored."""

import random
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.core.training import checkpoint
from experiments.core.training.checkpoint import Checkpoints
from experiments.core.training.rows import MetricsSinceRow

NOTHING_SINCE_ROW = MetricsSinceRow({"loss": np.zeros((1, 0), np.float32)})


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
    checkpoints.close()
    assert sorted(path.name for path in directory.iterdir()) == ["20", "30"]
    return directory


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run" / "checkpoints")


def restored(directory):
    """The step of the newest checkpoint that is intact, which is restored, and those of damaged ones."""
    step, damaged = checkpoint.find(directory)
    state, since_row = checkpoint.restore(directory / str(step), state_of(0))
    assert since_row.seconds == step
    jax.tree.map(np.testing.assert_array_equal, state, state_of(step))
    return step, [other for other, _ in damaged]


def files(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file())


def flip(path, place, mask=1):
    content = bytearray(path.read_bytes())
    content[place] ^= mask
    path.write_bytes(content)


def test_the_newest_is_restored_if_it_is_intact_and_none_where_there_is_none(saved, tmp_path):
    assert restored(saved) == (30, [])
    assert checkpoint.find(tmp_path) == checkpoint.find(tmp_path / "nowhere") == (None, [])


def test_any_byte_flipped_in_any_file_and_any_file_lost_or_longer_is_noticed(copy):
    """Runs with such checkpoints are in `test_damaged_runs.py`."""
    rng = random.Random(0)
    for path in files(copy / "30"):
        content = path.read_bytes()
        place = rng.randrange(len(content))
        for damaged in (None, content + b"\0", content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            assert [step for step, _ in checkpoint.find(copy)[1]] == [30]
            path.write_bytes(content)
    (copy / "30" / "more").touch()
    assert restored(copy) == (20, [30])


def test_where_none_is_intact_nothing_is_restored_or_changed(copy):
    for step in ("20", "30"):
        flip(copy / step / "since_row" / "metadata", 20)
    before = {path: path.read_bytes() for path in files(copy.parent)}
    with pytest.raises(UsageError, match=r"is intact \(30: its files are not those .*; 20: its files"):
        checkpoint.find(copy)
    assert before == {path: path.read_bytes() for path in files(copy.parent)}


def test_what_is_set_aside_stays_and_its_step_can_be_saved_again(copy):
    flip(copy / "30" / "state" / "_METADATA", 9)
    damaged = (copy / "30" / "state" / "_METADATA").read_bytes()
    assert checkpoint.set_aside(copy, 30) == copy.parent / "damaged-checkpoint-30"
    checkpoints = Checkpoints(copy)
    checkpoints.save(30, state_of(30), MetricsSinceRow({"loss": np.zeros((1, 0), np.float32)}, seconds=30.0))
    checkpoints.close()
    assert restored(copy) == (30, [])
    assert (copy.parent / "damaged-checkpoint-30" / "state" / "_METADATA").read_bytes() == damaged
    assert checkpoint.set_aside(copy, 30).name == "damaged-checkpoint-30-2"


def test_a_step_that_is_not_saved_is_no_matter_of_course(copy):
    checkpoints = Checkpoints(copy)
    with pytest.raises(RuntimeError, match="step 25 was not saved, after 30"):
        checkpoints.save(25, state_of(25), NOTHING_SINCE_ROW)
    checkpoints.close()
