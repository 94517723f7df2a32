"""The presets of all suites: their runs are sound, and compare like with like."""

import difflib
import math
from collections import Counter
from itertools import pairwise

import jax
import pytest

from experiments.cifar100_vit.suite import SUITE as CIFAR100
from experiments.mnist_pruning.methods import METHODS
from experiments.mnist_pruning.suite.__main__ import SUITE as MNIST
from experiments.vmoe.suite import SUITE as VMOE
from experiments.vmoe_clusters.suite import SUITE as CLUSTERS
from tests.experiments.support import assert_sound, suite_configs

PRESETS = [(suite, preset) for suite in (MNIST, CIFAR100, VMOE, CLUSTERS) for preset in suite.presets]


@pytest.mark.parametrize(("suite", "preset"), PRESETS, ids=[f"{suite.recipe.name}-{name}" for suite, name in PRESETS])
def test_the_trainer_accepts_every_run(suite, preset, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    # Else `config.get` looks for names like those of fields that a config lacks, half of the time.
    monkeypatch.setattr(difflib, "get_close_matches", lambda *names: [])
    assert_sound(suite, preset)
    assert suite is not VMOE or {config.accelerator for _, config in suite_configs(suite, preset)} == {
        preset in ("full", "cifar100")
    }


@pytest.mark.parametrize("preset", MNIST.presets)
def test_dense_is_chosen_by_its_own_error(preset):
    runs = MNIST.presets[preset]()
    assert all((run.base["method"] == "dense") == (run.chosen_by == "valid_error") for run in runs if run.candidate_for)
    assert preset != "demo" or {run.base["method"] for run in runs} == set(METHODS)


def test_resnet_methods_get_equal_tuning():
    runs = suite_configs(MNIST, "resnet")
    candidates = Counter(run.candidate_for.partition(",")[0] for run, _ in runs if run.candidate_for)
    assert candidates.pop("best-dense") == 5
    assert (len(candidates), set(candidates.values())) == (5, {10})
    finals = {name: [c.density for run, c in runs if run.best_of == name and c.split == "test"] for name in candidates}
    assert all(sorted(found) == [0.02, 0.05, 0.1] for found in finals.values())
    assert {(c.budget, c.model.depth, c.model.width, c.dataset) for _, c in runs} == {("network", 20, 16, "cifar100")}


def test_lenet_methods_have_ten_settings():
    runs = suite_configs(MNIST, "lenet")
    candidates = Counter(run.candidate_for.partition(",")[0] for run, _ in runs if run.candidate_for)
    assert (candidates.pop("best-dense"), candidates.pop("best-annealed-p3_2")) == (6, 14)
    assert (len(candidates), set(candidates.values())) == (8, {10})
    finals = [(run.best_of.partition(", ")[::2], c.density) for run, c in runs if run.best_of and c.split == "test"]
    densities = {name: sorted(density for (of, _), density in finals if of == name) for name in candidates}
    assert densities.pop("best-hard") == densities.pop("best-papers") == [0.02]
    assert all(found == [0.01, 0.02, 0.05, 0.1] for found in densities.values())
    assert all((density != 0.02) == (of == "first") for (_, of), density in finals if of != "changed")
    assert {sum(math.prod(pair) for pair in pairwise((784, *config.hidden, 10))) for _, config in runs} == {266_200}
