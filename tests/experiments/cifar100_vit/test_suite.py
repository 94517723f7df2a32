"""The suites of the fine-tuning experiment: their runs are sound, wait for their weights, and run to the end."""

import json
import re

import jax
import numpy as np
import pytest

from experiments.cifar100_vit.losses import LOSSES
from experiments.cifar100_vit.suite import (
    DECAYS,
    DEMO,
    FORMS,
    FULL_RATES,
    IN_ALL_SUITES,
    OTHERS,
    PRESETS,
    PRETRAIN,
    RATES,
    RATES_ON_FEATURES,
    SUITE,
)
from experiments.core.record import metrics
from experiments.core.suite import command
from experiments.core.suite.plan import SuiteRun
from tests.experiments.support import assert_sound, suite_configs, undrawn

SHORT = DEMO | {
    "model.depth": 1,
    "steps": 20,
    "steps_per_dispatch": 10,
    "eval_every": 20,
    "checkpoint_every": 20,
    "optimizer.warmup_steps": 2,
}
TINY = [
    SuiteRun(PRETRAIN, SHORT | {"split": "validation"}, variant="small,pretrain"),
    SuiteRun("final-xent", SHORT | {"seeds": (0, 1)}, variant="small,loss=xent", weights_of=PRETRAIN),
]


@pytest.mark.parametrize("preset", SUITE.presets)
def test_every_run_of_a_preset_is_one_that_the_trainer_accepts(preset, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert_sound(SUITE, preset)


def test_the_full_runs_need_an_accelerator_and_start_from_public_weights():
    for _, config in suite_configs(SUITE, "full"):
        assert config.accelerator
        assert config.pretrained.startswith("gs://")


@pytest.mark.parametrize("preset", ["small", "demo"])
def test_pretraining_comes_first_and_all_others_start_from_it(preset):
    (first, pretraining), *others = suite_configs(SUITE, preset)
    assert (first.name, first.variant, pretraining.export_params) == (PRETRAIN, "small,pretrain", True)
    assert (pretraining.label, pretraining.split) == ("coarse_label", "validation")
    for run, config in others:
        assert (run.weights_of, config.pretrained) == (PRETRAIN, "out/pretrain/params.npz")
        assert config.label == "label"
        assert config.model == pretraining.model
        # The images that choices are made on were kept from pretraining too.
        assert config.validation_size == pretraining.validation_size


def test_the_help_names_the_command_and_every_preset(capsys):
    with pytest.raises(SystemExit):
        command.main(SUITE, ["--help"])
    usage = f"python -m experiments.cifar100_vit.suite --out=DIR [--preset={'|'.join(PRESETS)}] [--only=REGEX]"
    assert usage in capsys.readouterr().out
    assert set(PRESETS) >= {"small", "pretrained", "last_block", "demo", "full"}


def test_the_demo_needs_no_download():
    assert {config.dataset for _, config in suite_configs(SUITE, "demo")} == {"digits"}


def test_the_sweep_tries_the_same_rates_for_every_loss_and_never_sees_the_test_images():
    rates = {}
    for run, config in suite_configs(SUITE, "small"):
        if run.candidate_for:
            assert (config.split, config.steps, len(config.seeds)) == ("validation", 100, 1)
            rates.setdefault((run.candidate_for, config.loss.lam), []).append(config.optimizer.learning_rate)
        elif run.best_of:
            assert (config.split, config.steps, len(config.seeds)) == ("test", 100, 5)
    assert {name for name, _ in rates} == set(IN_ALL_SUITES)
    assert {tuple(tried) for tried in rates.values()} == {RATES}


def test_on_features_every_loss_is_trained_at_the_papers_rate_and_at_its_own_of_one_grid():
    rates, decays, paper, final, lams = {}, {}, {}, {}, {}
    for run, config in suite_configs(SUITE, "pretrained"):
        assert (config.features.size, config.batch_size) == (160, 512)
        if not run.candidate_for or config.loss.name not in ("smooth_svm", "sorted_xent"):
            assert config.loss.lam == 1.0
        assert (config.split, len(config.seeds)) == (("validation", 1) if run.candidate_for else ("test", 5))
        # For intervals over images.
        assert config.export_examples == (config.split == "test")
        if "optimizer.weight_decay" in run.setting:
            decays.setdefault(run.candidate_for, []).append(config.optimizer.weight_decay)
            assert run.best_of == f"{run.candidate_for}, rate"
        elif run.candidate_for:
            assert not paper.keys() - FORMS.keys()  # what is cheap, and shows the claim, comes first
            rates.setdefault(run.candidate_for.removesuffix(", rate"), []).append(config.optimizer.learning_rate)
            lams.setdefault(config.loss.name, set()).add(config.loss.lam)
        elif run.best_of:
            final[run.best_of] = (config.images_per_class, config.steps)
        else:
            assert config.steps == 100
            paper[run.name.removeprefix("paper/")] = config.optimizer.learning_rate
    assert rates.keys() == final.keys() == decays.keys() > paper.keys() == set(FORMS)
    with_temperatures = {"smooth-svm": "smooth_svm", "sorted-xent": "sorted_xent"}
    assert {tuple(rates[name]) for name in paper.keys() - with_temperatures.keys()} == {RATES_ON_FEATURES}
    for name, loss in with_temperatures.items():
        assert tuple(rates[name]) == RATES_ON_FEATURES * len(FORMS[name].temperatures)
        assert lams.pop(loss) == set(FORMS[name].temperatures) > {1.0}
    assert set.union(*lams.values()) == {1.0}
    assert {tuple(decays[name]) for name in paper} == {DECAYS}
    for tried, option in ((rates, "rates"), (decays, "decays")):
        of_others = {
            f"{setting.prefix}{name}": getattr(setting, option) for setting in OTHERS for name in setting.losses
        }
        assert {name: tuple(tried[name]) for name in tried.keys() - paper.keys()} == of_others
    assert {final[name] for name in paper} == {(0, 100)}
    assert {final[f"{setting.prefix}{name}"] for setting in OTHERS for name in setting.losses} == {
        (setting.fields.get("images_per_class", 0), setting.steps) for setting in OTHERS
    }
    assert {name: paper[name] for name in ("xent", "topk-p2", "topk-p4_3")} == {
        "xent": 3e-3,
        "topk-p2": 5e-3,
        "topk-p4_3": 5e-3,
    }
    assert {form.loss for form in FORMS.values()} == set(LOSSES)
    assert set(IN_ALL_SUITES) < set(FORMS)


def test_at_full_size_the_values_are_the_papers_and_rates_are_chosen_besides():
    rates, own = {}, {}
    for run, config in suite_configs(SUITE, "full"):
        assert (config.batch_size, config.steps, config.model.variant, config.input.size) == (512, 100, "B/16", 384)
        assert config.loss.name == run.base["loss.name"]
        assert (config.split == "validation", config.export_examples) == (
            bool(run.candidate_for),
            not run.candidate_for,
        )
        if run.candidate_for:
            rates.setdefault(run.candidate_for, []).append(config.optimizer.learning_rate)
        elif run.best_of:
            own.setdefault(run.best_of, set()).update(config.seeds)
        else:
            assert run.name.startswith("paper/")
            assert config.optimizer.learning_rate == (3e-3 if "xent" in run.name else 5e-3)
    assert set(own) == set(rates) == set(IN_ALL_SUITES)
    assert {tuple(tried) for tried in rates.values()} == {FULL_RATES}
    assert {frozenset(seeds) for seeds in own.values()} == {frozenset({0, 1, 2})}
    tried = {(config.loss.name, config.loss.p, config.loss.target) for _, config in suite_configs(SUITE, "full")}
    assert tried >= {("xent", 2.0, "one_hot"), ("topk", 2.0, "one_hot"), ("topk", 4 / 3, "one_hot")}


def test_a_run_waits_for_its_weights(tmp_path, capsys):
    assert command.run_suite(SUITE, tmp_path, TINY, TINY[1:], ["suite"]) == 1
    out, err = capsys.readouterr()
    assert "final-xent  FAILED: its weights are not there yet: pretrain must run first\n" in out
    assert err == "error: 1 failed: final-xent\n"
    assert not (tmp_path / "final-xent").exists()


def test_a_suite_pretrains_tunes_draws_and_skips_what_is_done(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)  # to divide a run among eight devices takes long to compile
    assert command.run_suite(SUITE, tmp_path, TINY, TINY, ["suite"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    # Where a run takes long, lines that say how far it is come between its name and its result.
    assert re.search(
        r"\[1/2\] pretrain(\n    .*)*\n?  valid_accuracy/1 [\d.]+ %, valid_accuracy/3 [\d.]+ %, mean_topk_error ", out
    )
    assert re.search(
        r"\[2/2\] final-xent(\n    .*)*\n?  test_accuracy/1 [\d.]+ %, test_accuracy/3 [\d.]+ %, mean_topk_error ", out
    )
    assert "2 of 2 runs done in " in out
    with np.load(tmp_path / "pretrain" / "params.npz") as weights:
        assert weights["head/kernel"].shape == (32, 5)
    config = json.loads((tmp_path / "final-xent" / "config.json").read_text())
    assert config["pretrained"] == str(tmp_path / "pretrain" / "params.npz")
    rows = metrics.read(tmp_path / "final-xent" / "metrics.jsonl")
    # A head of zeros: all logits are equal, and the first class is right for one digit in ten.
    assert rows[0]["test_accuracy"]["1"] == pytest.approx(2 * [10], abs=4)
    table = (tmp_path / "table.md").read_text()
    assert "A stand-in for ViT-B/16" in table
    assert "| cross-entropy | learning rate 3e-3 | " in table
    assert (tmp_path / "figures" / "figure6.svg").exists()
    assert not (tmp_path / "choices.json").exists()  # there was nothing to choose
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    assert command.run_suite(undrawn(SUITE), tmp_path, TINY, TINY, ["suite"]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    assert capsys.readouterr().out.count("was done") == 2
