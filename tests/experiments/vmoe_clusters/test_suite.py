"""The suites of the task: their runs are sound, compare like with like, and run to the end."""

import jax
import numpy as np
import pytest

from experiments.core.record import metrics
from experiments.core.suite import command
from experiments.core.suite.plan import SuiteRun
from experiments.vmoe_clusters.suite import (
    SUITE,
)
from tests.experiments.support import assert_sound
from tests.experiments.vmoe import tables
from tests.experiments.vmoe_clusters.tiny import TINY

LEARNING = TINY | {"task.noise": 0.1, "steps": 400, "steps_per_dispatch": 200}
LEARNING |= {"eval_every": 200, "checkpoint_every": 200}
RUNS = [SuiteRun("final-hard", LEARNING, variant="router=hard")]


@pytest.mark.parametrize("preset", SUITE.presets)
def test_every_run_of_a_preset_is_one_that_the_trainer_accepts(preset, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert_sound(SUITE, preset)


def test_a_suite_learns_the_assignment_and_draws(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert command.run_suite(SUITE, tmp_path, RUNS, RUNS, ["suite"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "1 of 1 runs done in " in out
    start, _, end = metrics.read(tmp_path / "final-hard" / "metrics.jsonl")
    assert min(start["test_loss"]) > 80
    assert max(end["test_loss"]) < 40
    assert min(np.array(end["test_recovery"]) - start["test_recovery"]) > 3
    assert end["test_reachable"] == start["test_reachable"]
    assert start["test_loss"][0] != start["test_loss"][1]  # every seed has a problem of its own
    lines = (tmp_path / "table.md").read_text().splitlines()
    (row,) = tables.read(lines, "Test at noise 0.1, 400 steps")
    assert row["router"] == "hard, gates"
