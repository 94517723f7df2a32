"""Runs on digits: the densities of their rows, and networks that are exported, which are those of the last row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.core.input import dataset as data_lib
from experiments.core.record import metrics
from experiments.core.training import step, train
from experiments.mnist_pruning.experiment import RECIPE
from tests.experiments.mnist_pruning.test_networks import SIZE, small_transformer
from tests.experiments.support import loaded, small_config


def run(tmp_path, variant, **fields):
    """The rows of a run."""
    train.run(RECIPE, small_config(variant, seeds=(1,), **fields), tmp_path)
    return metrics.read(tmp_path / "metrics.jsonl")


def test_hard_concrete_reaches_its_density(tmp_path):
    first, *_, last = run(tmp_path, "hard_concrete", epochs=60, checkpoint_every=60)
    assert first["train_density"] == [1.0]
    assert first["hardened_density"] == pytest.approx([0.1])
    assert last["train_density"] == pytest.approx([0.1], abs=0.03)


def test_exported_network_matches_last_row(tmp_path):
    """Prunes some layers alone, each to the same density."""
    rows = run(tmp_path, "ista", hidden=(16, 15), prune_layers=(1, 3), density=0.29, export_params=True)
    densities = [row["train_density"][0] for row in rows]
    assert densities == sorted(densities, reverse=True)
    assert densities[0] == 1.0
    kept = {"1": (296, 64 * 16), "3": (43, 15 * 10)}
    assert rows[-1]["train_density_per_layer"] == {layer: pytest.approx([k / n]) for layer, (k, n) in kept.items()}
    assert rows[-1]["train_density"] == pytest.approx([(296 + 43) / (1024 + 150)])

    made = loaded("mnist_pruning", tmp_path)
    network, test = made["network"], made["data"].evaluation
    images, logits_of = network.prepare(test["image"]), jax.jit(network.logits)
    for name, metric in {"network": "test_error", "hardened": "hardened_error"}.items():
        found = 100 * (np.argmax(logits_of(made["params"][name], images), axis=1) != test["label"]).mean()
        assert found == pytest.approx(rows[-1][metric][0], rel=1e-6)


@pytest.mark.parametrize("budget", ["row", "network"])
def test_budget_is_per_row_or_whole_network(budget):
    make, density = (small_config, 6 / 64) if budget == "row" else (small_transformer, int(0.1 * SIZE) / SIZE)
    config = make("hard", budget=budget, density=0.1)
    data = data_lib.load(config)
    experiment = RECIPE.build(config, data)

    @jax.jit
    def densities(key):
        found = experiment.evaluate(experiment.init(key), data.evaluation, jnp.float32(0))
        return {name: value for name, value in found.items() if "density" in name}

    found = jax.tree.map(np.mean, densities(jax.random.key(0)))
    assert found["train_density"] == found["hardened_density"] == pytest.approx(density, rel=1e-5)
    shares = found["train_density_per_layer"].values()
    assert (len(shares), min(shares) != max(shares)) == ((1, False) if budget == "row" else (7, True))


def test_transformer_step_keeps_state_shapes():
    """Traces a step in which all matrices compete for one budget."""
    config = small_transformer("gradual", density_schedule__every=1, seeds=(0,))
    program = step.Program(RECIPE, config, data_lib.load(config))
    experiment, state = program.experiment, program.state
    batch = {"image": np.zeros((1, 32, 8, 8, 1), np.uint8), "label": np.zeros((1, 32), np.int32)}
    trained = step.make_train(experiment, config.steps)
    after, _ = jax.eval_shape(trained, state, np.int32(0), {}, batch, np.int32(0))
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree) for tree in (after, state)]
    assert shapes[0] == shapes[1]
