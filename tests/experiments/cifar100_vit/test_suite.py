"""The suites of the fine-tuning experiment: their runs are sound, wait for their weights, and run to the end."""

import jax
import numpy as np
import pytest

from experiments.cifar100_vit.suite import (
    DEMO,
    FULL_RATES,
    IN_ALL_SUITES,
    PRETRAIN,
    SUITE,
)
from experiments.core.record import metrics
from experiments.core.suite import command
from experiments.core.suite.plan import SuiteRun
from tests.experiments.support import loaded, suite_configs

SHORT = DEMO | {
    "model.depth": 1,
    "steps": 50,
    "steps_per_dispatch": 50,
    "eval_every": 50,
    "checkpoint_every": 50,
    "optimizer.warmup_steps": 5,
}
TINY = [
    SuiteRun(PRETRAIN, SHORT | {"split": "validation"}, variant="small,pretrain"),
    SuiteRun("final-xent", SHORT | {"seeds": (0, 1)}, variant="small,loss=xent", weights_of=PRETRAIN),
]


def test_all_runs_start_from_pretraining():
    (first, pretraining), *others = suite_configs(SUITE, "demo")
    assert (first.name, pretraining.export_params, pretraining.split) == (PRETRAIN, True, "validation")
    for run, config in others:
        assert (run.weights_of, config.pretrained) == (PRETRAIN, "out/pretrain/params.npz")
        # The images that choices are made on were kept from pretraining too.
        assert (config.model, config.validation_size) == (pretraining.model, pretraining.validation_size)


def test_full_size_losses_share_rates():
    """At the others this follows from the committed runs."""
    rates = {}
    for run, config in suite_configs(SUITE, "full"):
        if run.candidate_for:
            rates.setdefault((run.candidate_for, config.loss.lam), []).append(config.optimizer.learning_rate)
        assert config.accelerator
        assert config.pretrained.startswith("gs://")
        assert config.export_examples == (config.split == "test")
        assert (config.batch_size, config.steps, config.model.variant, config.input.size) == (512, 100, "B/16", 384)
        if run.name.startswith("paper/"):
            assert config.optimizer.learning_rate == (3e-3 if "xent" in run.name else 5e-3)
    assert {name for name, _ in rates} == set(IN_ALL_SUITES)
    assert {tuple(tried) for tried in rates.values()} == {FULL_RATES}


def test_transformer_losses_share_a_grid():
    grids, seeds = {}, {}
    for run, config in suite_configs(SUITE, "transformer"):
        assert (config.input.size, config.batch_size, config.steps, config.pretrained) == (224, 512, 100, "dinov2-s14")
        if run.candidate_for:
            point = (config.optimizer.learning_rate, config.loss.lam)
            grids.setdefault(run.candidate_for, []).append(point)
        else:
            seeds.setdefault(run.name.rpartition("-")[0], []).extend(config.seeds)
    assert len(grids) == 6
    assert len({tuple(points) for points in grids.values()}) == 1
    assert len(seeds) == 12
    assert {tuple(five) for five in seeds.values()} == {(0, 1, 2, 3, 4)}


def test_suite_waits_for_pretrained_weights(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)  # to divide a run among eight devices takes long to compile
    assert command.run_suite(SUITE, tmp_path, TINY, TINY[1:], ["suite"]) == 1
    assert "final-xent  FAILED: its weights are not there yet: pretrain must run first\n" in capsys.readouterr().out

    assert command.run_suite(SUITE, tmp_path, TINY, TINY[:1], ["suite"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "valid_accuracy/1" in out
    first, last = metrics.read(tmp_path / "pretrain" / "metrics.jsonl")
    accuracies = [last["valid_accuracy"][str(k)][0] for k in range(1, 6)]
    assert last["valid_accuracy"].keys() == {"1", "2", "3", "4", "5"}  # as many as there are coarse classes
    assert accuracies == sorted(accuracies)
    assert accuracies[-1] == 100.0
    assert last["mean_topk_error"][0] == pytest.approx(100 - np.mean(accuracies), abs=1e-3)
    assert accuracies[0] > 40 > first["valid_accuracy"]["1"][0]  # it learns; chance is 20 %
    found = loaded("cifar100_vit", tmp_path / "pretrain")["metrics"]["valid_accuracy"]
    np.testing.assert_allclose([found[str(k)].mean() for k in range(1, 6)], accuracies, rtol=1e-6)
    assert SUITE.config(TINY[1], tmp_path).pretrained == str(tmp_path / "pretrain" / "params.npz")
    assert (tmp_path / "table.md").exists()
