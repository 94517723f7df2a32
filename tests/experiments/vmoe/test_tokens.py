"""V-MoE on maps of a frozen network: groups, what is left of one, mistakes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.vmoe import get_config
from experiments.core.errors import UsageError
from experiments.core.training import evaluation, train
from experiments.core.training.experiment import Setup
from experiments.vision import efficientnet_weights, features
from experiments.vmoe.experiment import RECIPE, routing_shape
from experiments.vmoe.router_kinds import Shape
from tests.experiments.support import on_one_device
from tests.experiments.vmoe.tiny import random_params

SIDE, CHANNELS = 2, 16
TINY = {
    "dataset": "digits",
    "validation_size": 300,
    "features.size": 16 * SIDE,
    "model.variant": "mu/1",
    "model.width": 32,
    "model.depth": 1,
    "model.mlp_dim": 64,
    "moe.blocks": (0,),
    "moe.num_experts": 8,
    "moe.group_images": 10,
    "router.k": 10,
    "batch_size": 60,
    "eval_batch_size": 120,
    "steps": 60,
    "eval_every": 20,
    "checkpoint_every": 30,
    "optimizer.warmup_steps": 5,
}


def maps_of(images):
    """Of digits [N, 8, 8, 1]: their patches of 4 x 4 pixels, as the channels of 2 x 2 places."""
    patches = images.reshape(-1, SIDE, 4, SIDE, 4).swapaxes(2, 3).reshape(-1, SIDE, SIDE, CHANNELS)
    return (patches / 127.5 - 1).astype(np.float16)


@pytest.fixture
def tokens(tmp_path, monkeypatch):
    """Makes configs of networks on these maps, in the place of those of a network that is not there."""
    monkeypatch.setattr(efficientnet_weights, "is_installed", lambda: True)
    monkeypatch.setattr(features, "_network", lambda size, layer: maps_of)
    features._source.cache_clear()

    def config(argument="tokens,router=hard", **fields):
        kept = {"features.directory": str(tmp_path / "kept")}
        return on_one_device(get_config(argument), TINY | kept, fields)

    yield config
    features._source.cache_clear()


def test_the_stand_in_has_the_routing_problem_of_the_paper():
    config = get_config("tokens")
    assert routing_shape(config) == Shape(tokens=400, k=28, capacity=28)
    assert (config.moe.num_experts, len(config.moe.blocks)) == (32, 2)
    assert (config.features.layer, config.features.size, config.moe.group_images) == ("stage_5", 128, 25)
    assert "input" not in config
    # Groups of test and of validation are whole.
    assert all(images % config.moe.group_images == 0 for images in (50_000, 45_000, config.batch_size))


def test_the_last_group_is_filled_up_with_the_last_image_which_counts_once(tokens):
    config = tokens(eval_batch_size=20)
    data = RECIPE.load(config)
    few = {name: array[:13] for name, array in data.evaluation.items()}
    filled = {name: array[np.minimum(np.arange(20), 12)] for name, array in data.evaluation.items()}
    experiment = RECIPE.build(config, data)
    params = random_params(config, data)
    short = dataclasses.replace(data, evaluation=few)
    made = evaluation.make(Setup(RECIPE, config, short))
    made.compile(params)
    of_each = jax.jit(experiment.evaluate)(params, filled, jnp.float32(0.5))
    found = made(params, 0.5)
    for name in ("test_loss", "test_precision_at_1"):
        np.testing.assert_allclose(found[name], np.mean(of_each[name][:13]), rtol=1e-5)
    # The joint frequencies of experts and classes, of the real images.
    joint = np.sum(of_each["test_router"]["block_0"]["specialisation"][:13], axis=0)
    share = joint / joint.sum()
    alone = share.sum(axis=1, keepdims=True) * share.sum(axis=0, keepdims=True)
    nats = np.sum(share * np.log(np.where(share > 0, share / np.where(alone > 0, alone, 1), 1)))
    assert nats > 0.01
    np.testing.assert_allclose(found["test_router"]["block_0"]["specialisation"], nats, rtol=1e-3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"features__layer": "pooled"}, r"features\.layer='pooled' .* one of maps, before_last_block, stage_5"),
        (
            {"features__size": 96, "features__layer": "maps", "model__variant": "mu/2"},
            r"features\.size=96 .* a multiple of 64: 32 pixels for a",
        ),
        ({"moe__group_images": 24}, r"batch_size=60 .* a multiple of 24"),
        ({"router__k": 41}, r"router\.k=41 .* at most the 40 tokens of a group"),
    ],
)
def test_mistakes_are_told_in_one_line(tokens, tmp_path, fields, message):
    config = tokens(**fields)
    with pytest.raises(UsageError, match=message):
        train.run(RECIPE, config, tmp_path / "w")
    assert not (tmp_path / "w").exists()
