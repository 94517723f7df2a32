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
from experiments.vmoe.suite import BEST_RATE, DEMO, SMALL_LAMS, SMALL_RATES, SMALL_SEEDS, SUITE
from tests.experiments.support import ROOT, assert_sound, suite_configs, undrawn
from tests.experiments.vmoe import tables

SHORT = DEMO | {"steps": 50, "steps_per_dispatch": 25, "eval_every": 25, "checkpoint_every": 50, "seeds": (0, 1)}
SHORT |= {
    "export_probe": True,
    "optimizer.learning_rate": 1e-2,
    "optimizer.warmup_steps": 5,
    "model.depth": 1,
    "moe.blocks": (0,),
}
TINY = [
    SuiteRun("final-hard", SHORT, variant="small,router=hard"),
    SuiteRun("final-relaxed", SHORT, variant="small,router=relaxed"),
]


@pytest.mark.parametrize("preset", SUITE.presets)
def test_every_run_of_a_preset_is_one_that_the_trainer_accepts(preset, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert_sound(SUITE, preset)
    assert {config.accelerator for _, config in suite_configs(SUITE, preset)} == {preset == "full"}


def test_the_small_suite_compares_like_with_like():
    lengths, shapes, seen = set(), set(), {}
    for run, config in suite_configs(SUITE, "small"):
        lengths.add((config.steps, config.batch_size))
        shape = routing_shape(config)
        shapes.add((shape.tokens, shape.k, config.moe.num_experts))
        if run.candidate_for:
            assert (config.split, len(config.seeds)) == ("validation", 1)
        else:
            assert (config.split, tuple(config.seeds)) == ("test", SMALL_SEEDS)
            seen[run.name] = config
    assert len(lengths) == 1
    assert shapes == {(400, 28, 32)}  # the paper's
    assert len(SMALL_SEEDS) >= 5
    assert {(config.router.name, config.router.score, config.router.dykstra) for config in seen.values()} >= {
        ("hard", "gates", 0),
        *(("relaxed", score, 0) for score in SMALL_LAMS),
        ("relaxed", "logits", 10),
        ("token_choice", "logits", 0),
    }


def test_the_suite_on_tokens_is_the_first_and_tunes_every_router_alike():
    assert next(iter(SUITE.presets)) == "tokens"
    rates, final, shapes, lengths = {}, {}, set(), {}
    for run, config in suite_configs(SUITE, "longer"):
        shape = routing_shape(config)
        shapes.add((shape.tokens, shape.k, config.moe.num_experts, config.batch_size))
        name = (run.candidate_for or run.best_of).removesuffix(", lam")
        lengths.setdefault(name, set()).add(config.steps)
        if run.candidate_for:
            assert (config.split, tuple(config.seeds)) == ("validation", suite.SWEEP_SEEDS)
            rates.setdefault(name, set()).add(config.optimizer.learning_rate)
        else:
            assert (config.split, tuple(config.seeds)) == ("test", suite.TOKENS_SEEDS)
            assert config.export_probe == (config.steps == 800)  # for the pictures, which are of the shorter ones
            final[name] = config.router
    assert len(shapes) == 1
    assert shapes.pop()[:3] == (400, 28, 32)  # the paper's
    assert len(suite.TOKENS_SEEDS) == 10
    assert rates.keys() == final.keys() == lengths.keys()
    assert [run.name for run in SUITE.presets["longer"]()[: len(SUITE.presets["tokens"]())]] == [
        run.name for run in SUITE.presets["tokens"]()
    ]
    longer = {f"{name}, {suite.LONGER_STEPS} steps" for name in suite.LONGER}
    assert {name: lengths[name] for name in longer} == {name: {suite.LONGER_STEPS} for name in longer}
    assert all(length == {800} for name, length in lengths.items() if name not in longer)
    assert all(tried == set(suite.TOKENS_RATES) for tried in rates.values())
    assert {router.name for router in final.values()} == set(ROUTERS) - suite.OMITTED
    papers = {(router.score, router.p, router.dykstra) for router in final.values() if router.name == "relaxed"}
    assert papers >= {("logits", 2.0, 0), ("gates", 2.0, 0), ("logits", 4 / 3, 0), ("logits", 2.0, 10)}


def test_all_train_at_the_rate_that_the_committed_sweep_chose():
    choices = json.loads((ROOT / "results" / "vmoe" / "choices.json").read_text())
    assert choices["hard"]["setting"] == {"optimizer.learning_rate": BEST_RATE}
    rates = {
        config.optimizer.learning_rate for run, config in suite_configs(SUITE, "small") if run.name.startswith("final")
    }
    assert rates <= {BEST_RATE, SMALL_RATES[0]}  # the first of its candidates stands for what hard will have


def test_the_demo_needs_no_download():
    assert {config.dataset for _, config in suite_configs(SUITE, "demo")} == {"digits"}


def test_a_suite_trains_draws_and_skips_what_is_done(tmp_path, capsys, monkeypatch):
    """Its runs end with a precision above chance and say what their routers did."""
    monkeypatch.setattr(jax, "device_count", lambda: 1)  # to divide a run among eight devices takes long to compile
    assert command.run_suite(SUITE, tmp_path, TINY, TINY, ["suite"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "2 of 2 runs done in " in out
    rows = metrics.read(tmp_path / "final-relaxed" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 25, 50]
    start, _, end = rows
    assert start["test_precision_at_1"] == pytest.approx([10, 10], abs=5)
    assert min(end["test_precision_at_1"]) > 50
    np.testing.assert_allclose(end["test_error"], 100 - np.array(end["test_precision_at_1"]), atol=1e-4)
    for prefix in ("train", "test"):
        router = end[f"{prefix}_router"]["block_0"]
        assert min(router["support"]) >= 44
        assert max(router["dropped_mass"]) < 20
    assert start["train_router"]["block_0"]["support"] == [None, None]  # nothing has been trained
    rows = tables.read((tmp_path / "table.md").read_text().splitlines(), "Test: precision-at-1 after 50 steps")
    assert [row["router"] for row in rows] == ["hard, gates", "relaxed, logits"]
    rows = tables.read((tmp_path / "table.md").read_text().splitlines(), "What the routers do after 50 steps")
    assert all(0 <= float(row["stability, %"]) <= 100 for row in rows)
    assert {path.name for path in (tmp_path / "figures").glob("*.svg")} == {"figure7.svg"}
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    assert command.run_suite(undrawn(SUITE), tmp_path, TINY, TINY, ["suite"]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    assert capsys.readouterr().out.count("was done") == 2
