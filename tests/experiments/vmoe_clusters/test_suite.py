"""The suites of the task: their runs are sound, compare like with like; and one learns."""

import jax
import numpy as np
import pytest

from experiments.core.record import metrics
from experiments.core.training import train
from experiments.vmoe_clusters.experiment import RECIPE
from experiments.vmoe_clusters.suite import SUITE
from tests.experiments.support import assert_sound
from tests.experiments.vmoe_clusters.tiny import tiny_config

LEARNING = {"task__noise": 0.1, "steps": 400, "steps_per_dispatch": 400, "eval_every": 400, "checkpoint_every": 400}


@pytest.mark.parametrize("preset", SUITE.presets)
def test_every_run_of_a_preset_is_one_that_the_trainer_accepts(preset, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert_sound(SUITE, preset)


def test_a_run_learns_the_assignment(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    train.run(RECIPE, tiny_config(**LEARNING), tmp_path)
    start, end = metrics.read(tmp_path / "metrics.jsonl")
    assert min(start["test_loss"]) > 80
    assert max(end["test_loss"]) < 40
    assert min(np.array(end["test_recovery"]) - start["test_recovery"]) > 3
    assert end["test_reachable"] == start["test_reachable"]
    assert start["test_loss"][0] != start["test_loss"][1]  # every seed has a problem of its own
