"""The parts beyond the paper's setting: every method at its best, why the paper's lam fails, a second network."""

import collections

from experiments.mnist_pruning.suite.__main__ import SUITE
from experiments.mnist_pruning.suite.best import CELLS, EVERYWHERE, RATES, VIT_RATES, best, quick, vit
from experiments.mnist_pruning.suite.presets import OF_OPERATOR, OPEN, why
from tests.experiments.support import assert_sound


def test_every_run_is_one_that_the_trainer_accepts():
    for preset in ("best", "why", "quick", "vit"):
        assert_sound(SUITE, preset)


def test_every_method_that_prunes_has_as_many_candidates_as_any_other():
    candidates = collections.Counter(run.candidate_for for run in best() if run.candidate_for)
    assert candidates.pop("best-dense") == len(RATES)
    assert set(candidates.values()) == {2 * len(RATES)}


def test_choices_are_on_validation_and_what_is_compared_has_equal_steps_and_other_seeds():
    runs = best()
    assert all((run.base["split"] == "validation") == bool(run.candidate_for) for run in runs)
    assert {(run.base["split"], run.base["epochs"]) for run in runs} == {("validation", 15), ("test", 30)}
    tried = {seed for run in runs if run.candidate_for for seed in run.base["seeds"]}
    assert not tried & {seed for run in runs if not run.candidate_for for seed in run.base["seeds"]}


def test_the_strongest_baselines_and_ours_have_every_density_and_budget():
    names = {run.name for run in best()}
    assert len(set(CELLS)) == 8
    for name in EVERYWHERE:
        assert {f"best/{budget}-{name}-{density:g}" for budget, density in CELLS} <= names
    assert [run.base["density"] for run in quick()] == [0.02] * (1 + len(EVERYWHERE))


def test_every_variant_of_what_is_open_has_its_hard_top_k():
    names = {run.name for run in why()}
    assert len(names) == 2 * len(OPEN) + len(OF_OPERATOR) + 3  # of three with p = 4/3, too
    for run in why():
        if run.base["method"] == "hard":
            assert {"form", "lam_times_size"}.isdisjoint(run.base)
        else:
            assert (run.base["lam.start"], run.base["lam.schedule"], run.base["debias"]) == (1e-4, "constant", False)


def test_every_method_has_the_same_rates_and_steps_on_the_second_network():
    runs = vit()
    assert len({run.base["method"] for run in runs}) == 6  # two of them are the relaxed one
    candidates = collections.Counter(run.candidate_for for run in runs if run.candidate_for)
    assert set(candidates.values()) == {len(VIT_RATES)}
    assert {(run.base["split"], run.base["steps"]) for run in runs} == {("validation", 800), ("test", 1600)}
    assert all((run.base["split"] == "validation") == bool(run.candidate_for) for run in runs)
    finals = [run for run in runs if not run.candidate_for]
    assert {run.base["seeds"] for run in finals} == {(0, 1, 2)}
    cells = collections.Counter(run.base["density"] for run in finals)
    assert cells == {0.1: len(candidates), 0.02: len(candidates) - 1}  # of the dense network no density is asked


def test_the_second_network_is_pruned_in_one_pool_on_coarse_labels(tmp_path):
    for run in vit():
        config = SUITE.config(run, tmp_path, {"optimizer.learning_rate": 1e-3})
        assert (config.network, config.dataset, config.label, config.budget) == (
            "vit",
            "cifar100",
            "coarse_label",
            "network",
        )
