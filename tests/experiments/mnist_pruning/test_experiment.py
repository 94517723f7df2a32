"""Runs on digits: the densities of their rows, and networks that are exported, which are those of the last row."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.core.input import dataset as data_lib
from experiments.core.record import metrics
from experiments.core.training import train
from experiments.mnist_pruning.experiment import RECIPE
from tests.experiments.mnist_pruning.test_networks import SIZE, small_transformer
from tests.experiments.support import loaded, small_config


def falling_to_about_k(rows):
    assert rows[0]["train_density"] == [1.0]
    assert rows[-1]["train_density"] == pytest.approx([0.1], abs=0.03)


def of_pruned_layers_alone(rows):
    densities = [row["train_density"][0] for row in rows]
    assert densities == sorted(densities, reverse=True)
    assert densities[0] == 1.0
    kept = {"1": (296, 64 * 16), "3": (43, 15 * 10)}
    assert rows[-1]["train_density_per_layer"] == {layer: pytest.approx([k / n]) for layer, (k, n) in kept.items()}
    assert rows[-1]["train_density"] == pytest.approx([(296 + 43) / (1024 + 150)])


def matrices_compete(rows):
    last = rows[-1]
    assert rows[0]["train_density"][0] > 0.3
    assert last["train_density"] == last["hardened_density"] == pytest.approx([int(0.1 * SIZE) / SIZE], rel=1e-4)
    assert last["hardened_error"] == last["test_error"]
    shares = last["train_density_per_layer"]
    assert len(shares) == 7
    assert min(shares.values()) != max(shares.values())


CASES = {
    "hard_concrete": (falling_to_about_k, {"epochs": 60, "checkpoint_every": 60}),
    "ista": (of_pruned_layers_alone, {"hidden": (16, 15), "prune_layers": (1, 3), "density": 0.29}),
    "gradual": (matrices_compete, {"density": 0.1, "density_schedule__end": 0.75, "density_schedule__every": 1}),
}


@pytest.mark.parametrize("variant", CASES)
def test_a_run_has_the_density_that_it_says_and_one_is_looked_at_as_exported(tmp_path, variant):
    check, fields = CASES[variant]
    make = small_transformer if variant == "gradual" else small_config
    config = make(variant, seeds=(1,), **fields)
    config.export_params = variant == "ista"
    train.run(RECIPE, config, tmp_path)
    rows = metrics.read(tmp_path / "metrics.jsonl")
    check(rows)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert (saved["method"], saved["density"]) == (config.method, config.density)
    if not config.export_params:
        return

    made = loaded("mnist_pruning", tmp_path)
    network, test = made["network"], made["data"].evaluation
    images = network.prepare(test["image"])
    for name, metric in {"network": "test_error", "hardened": "hardened_error"}.items():
        logits = network.logits(made["params"][name], images)
        found = 100 * (np.argmax(logits, axis=1) != test["label"]).mean()
        assert found == pytest.approx(rows[-1][metric][0], rel=1e-6)


def test_every_unit_keeps_six():
    config = small_config("hard", budget="row", density=0.1)
    data = data_lib.load(config)
    experiment = RECIPE.build(config, data)
    metrics = jax.jit(lambda key: experiment.evaluate(experiment.init(key), data.evaluation, jnp.float32(0)))(
        jax.random.key(0)
    )
    assert metrics["train_density"] == metrics["hardened_density"] == pytest.approx(6 / 64)
