"""The suites of V-MoE: their runs are sound, compare like with like, and run to the end."""

import json

import jax
import numpy as np
import pytest

from experiments.core.record import metrics
from experiments.core.suite import command
from experiments.core.suite.plan import SuiteRun
from experiments.vmoe import suite
from experiments.vmoe.experiment import routing_shape
from experiments.vmoe.router_kinds import ROUTERS
from experiments.vmoe.suite import BEST_RATE, DEMO, SUITE
from tests.experiments.support import ROOT, assert_sound, suite_configs
from tests.experiments.vmoe import tables

SHORT = DEMO | {"steps": 50, "steps_per_dispatch": 25, "eval_every": 25, "checkpoint_every": 50, "seeds": (1,)}
SHORT |= {
    "optimizer.learning_rate": 1e-2,
    "optimizer.warmup_steps": 5,
    "model.depth": 1,
    "moe.blocks": (0,),
}
TINY = [SuiteRun("final-relaxed", SHORT, variant="small,router=relaxed")]


@pytest.mark.parametrize("preset", SUITE.presets)
def test_every_run_of_a_preset_is_one_that_the_trainer_accepts(preset, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert_sound(SUITE, preset)
    assert {config.accelerator for _, config in suite_configs(SUITE, preset)} == {preset == "full"}


@pytest.mark.parametrize("preset", ["small", "longer"])
def test_routers_have_the_papers_problem_and_every_form_of_the_papers(preset):
    made = suite_configs(SUITE, preset)
    shapes = [(routing_shape(config), config.moe.num_experts, config.batch_size) for _, config in made]
    assert len({batch_size for *_, batch_size in shapes}) == 1
    assert {(shape.tokens, shape.k, num_experts) for shape, num_experts, _ in shapes} == {(400, 28, 32)}
    final = [config.router for run, config in made if not run.candidate_for]
    forms = {(router.name, router.score, router.dykstra) for router in final}
    assert forms >= {("hard", "gates", 0), *(("relaxed", score, 0) for score in ("gates", "logits"))}
    assert forms >= {("relaxed", "logits", 10), ("token_choice", "logits", 0)}
    assert preset == "small" or {router.name for router in final} == set(ROUTERS) - suite.OMITTED


def test_on_tokens_every_router_is_tried_at_the_same_rates():
    assert next(iter(SUITE.presets)) == "tokens"
    assert SUITE.presets["longer"]()[: len(SUITE.presets["tokens"]())] == SUITE.presets["tokens"]()
    rates, lengths = {}, {}
    for run, config in suite_configs(SUITE, "longer"):
        choice = (run.candidate_for or run.best_of).removesuffix(", lam")
        lengths.setdefault(choice, set()).add(config.steps)
        if run.candidate_for:
            rates.setdefault(choice, set()).add(config.optimizer.learning_rate)
        else:
            assert tuple(config.seeds) == suite.TOKENS_SEEDS
            assert config.export_probe == (config.steps == 800)  # for the pictures, which are of the shorter ones
    assert all(tried == set(suite.TOKENS_RATES) for tried in rates.values())
    longer = {f"{name}, {suite.LONGER_STEPS} steps" for name in suite.LONGER}
    assert {name for name, steps in lengths.items() if steps == {suite.LONGER_STEPS}} == longer
    assert all(lengths[name] == {800} for name in lengths.keys() - longer)


def test_all_train_at_the_rate_that_the_committed_sweep_chose():
    choices = json.loads((ROOT / "results" / "vmoe" / "choices.json").read_text())
    assert choices["hard"]["setting"] == {"optimizer.learning_rate": BEST_RATE}


def test_a_suite_trains_and_draws(tmp_path, capsys, monkeypatch):
    """Its runs end with a precision above chance, and say what their routers did."""
    monkeypatch.setattr(jax, "device_count", lambda: 1)  # to divide a run among eight devices takes long to compile
    assert command.run_suite(SUITE, tmp_path, TINY, TINY, ["suite"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "1 of 1 runs done in " in out
    rows = metrics.read(tmp_path / "final-relaxed" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 25, 50]
    start, _, end = rows
    assert start["test_precision_at_1"] == pytest.approx([10], abs=5)
    assert min(end["test_precision_at_1"]) > 50
    np.testing.assert_allclose(end["test_error"], 100 - np.array(end["test_precision_at_1"]), atol=1e-4)
    for prefix in ("train", "test"):
        router = end[f"{prefix}_router"]["block_0"]
        assert min(router["support"]) >= 44
        assert max(router["dropped_mass"]) < 20
    assert start["train_router"]["block_0"]["support"] == [None]  # nothing has been trained
    rows = tables.read((tmp_path / "table.md").read_text().splitlines(), "Test after 50 steps")
    assert [row["router"] for row in rows] == ["relaxed, logits"]
