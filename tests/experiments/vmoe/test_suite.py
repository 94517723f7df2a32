"""The suites of V-MoE: their runs are sound, compare like with like, and run to the end."""

import json

import jax
import numpy as np
import pytest

from experiments.core.record import metrics
from experiments.core.suite import command
from experiments.core.suite.plan import SuiteRun
from experiments.vmoe.suite import BEST_RATE, DEMO, SUITE
from tests.experiments.support import ROOT, assert_sound, suite_configs
from tests.experiments.vmoe import tables

# The relaxed router is in test_exchange.py, and so are groups that lie on several devices.
SHORT = DEMO | {
    "model.depth": 1,
    "moe.blocks": (0,),
    "batch_size": 80,
    "eval_batch_size": 160,
    "seeds": (1,),
    "steps": 20,
    "eval_every": 4,
    "checkpoint_every": 8,
    "optimizer.warmup_steps": 4,
}
RUN = SuiteRun("final-hard", SHORT, variant="small,router=hard")


@pytest.mark.parametrize("preset", SUITE.presets)
def test_every_run_of_a_preset_is_one_that_the_trainer_accepts(preset, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert_sound(SUITE, preset)
    assert {config.accelerator for _, config in suite_configs(SUITE, preset)} == {preset == "full"}


def test_all_train_at_the_rate_that_the_committed_sweep_chose():
    choices = json.loads((ROOT / "results" / "vmoe" / "choices.json").read_text())
    assert choices["hard"]["setting"] == {"optimizer.learning_rate": BEST_RATE}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory in which the suite has trained its one run, on one device, and drawn it."""
    out = tmp_path_factory.mktemp("suite")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "device_count", lambda: 1)
        assert command.run_suite(SUITE, out, [RUN], [RUN], ["suite"]) == 0
    return out


def test_a_run_of_a_suite_learns_says_what_its_router_did_and_is_drawn(made):
    rows = metrics.read(made / RUN.name / "metrics.jsonl")
    start, end = rows[0], rows[-1]
    assert start["test_precision_at_1"] == pytest.approx([10], abs=5)
    assert end["test_precision_at_1"][0] > start["test_precision_at_1"][0] + 5
    np.testing.assert_allclose(end["test_error"], 100 - np.array(end["test_precision_at_1"]), atol=1e-4)
    for prefix in ("train", "test"):
        router = end[f"{prefix}_router"]["block_0"]
        assert min(router["support"]) == 44
        assert max(router["dropped_mass"]) < 20
    assert start["train_router"]["block_0"]["support"] == [None]  # nothing has been trained
    assert start["test_stability"] == {"block_0": [None]}
    assert all(0 < value < 100 for row in rows[1:] for value in row["test_stability"]["block_0"])
    lines = (made / "table.md").read_text().splitlines()
    assert [row["router"] for row in tables.read(lines, "Test after 20 steps")] == ["hard, gates"]
