"""The config of V-MoE: the paper's values, what its options do, and mistakes in it, each told in one line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.vmoe import DATA, get_config
from experiments.core.errors import UsageError
from experiments.core.training import optimizer, train
from experiments.vmoe.experiment import RECIPE, make_router, routing_shape
from experiments.vmoe.router_kinds import ROUTERS, Shape


def validate(config):
    """As the trainer does, before it reads data."""
    train.validate(config)
    RECIPE.validate(config)


def test_the_full_size_is_the_papers():
    config = get_config()
    validate(_on_cpus(config))
    assert (config.batch_size, config.accumulate, config.model.variant, config.input.size) == (4096, 1, "S/32", 224)
    assert config.optimizer.to_dict() == {
        "name": "adam",
        "momentum": 0.9,
        "b2": 0.999,
        "learning_rate": 1e-3,
        "schedule": "linear",
        "warmup_steps": 10_000,
        "weight_decay": 0.1,
    }
    assert (config.moe.blocks, config.moe.num_experts, config.moe.group_images) == ((5, 7), 32, 8)
    assert routing_shape(config) == Shape(tokens=400, k=28, capacity=28)
    assert (config.router.name, config.router.p, config.router.noise) == ("relaxed", 2.0, 1.0)
    assert [get_config(f"data={data}").loss for data in DATA] == ["softmax", "sigmoid"]


def test_adam_weight_decay_is_decoupled():
    """Two updates of `optimizer.make` against AdamW in NumPy."""
    config = get_config()
    config.optimizer.warmup_steps = 1
    chain = optimizer.make(config)
    updated = jax.jit(chain.update)  # by itself it is dozens of programs
    value = jnp.array([1.0, -2.0])
    state, first, second = chain.init(value), 0.0, 0.0
    for step, gradient in enumerate((np.array([0.5, 0.1]), np.array([-0.2, 0.3]))):
        rate = optimizer.learning_rate(config, step)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        unbiased = first / (1 - 0.9 ** (step + 1)), second / (1 - 0.999 ** (step + 1))
        expected = -rate * (unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8) + 0.1 * np.asarray(value))
        with jax.numpy_dtype_promotion("standard"):
            update, state = updated(jnp.asarray(gradient, jnp.float32), state, value)
        np.testing.assert_allclose(update, expected, rtol=1e-4, atol=1e-12)
        value = value + update


def test_every_router_is_valid_in_each_size():
    for router in ROUTERS:
        for argument in ("size=S/32", "size=B/16", "small"):
            config = get_config(f"router={router},{argument}")
            validate(_on_cpus(config))
            make_router(config, 0.1)
    assert routing_shape(get_config("small")) == Shape(tokens=400, k=28, capacity=28)  # the paper's routing problem


@pytest.mark.parametrize(
    ("factor", "multiple_of", "k"),
    [(2.0, 4, 28), (2.2, 1, 28), (0.07, 4, 4), (8.8, 1, 110)],  # 8.8 * 12.5 > 110
)
def test_k_from_factor_rounds_up_exactly(factor, multiple_of, k):
    config = get_config()
    config.router.update(k=0, factor=factor, multiple_of=multiple_of)
    assert routing_shape(config).k == k


def _on_cpus(config):
    """For the one device of a process of tests that has eight."""
    config.mesh = {"data": -1}
    if config.moe.group_images == 25:
        del config.mesh
    return config


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"router.score": "both"}, r"config\.router\.score='both' .* one of gates, logits"),
        ({"router.p": 1.5, "router.dykstra": 10}, r"config\.router\.p=1\.5 .* 2 with router\.dykstra"),
        ({"router.name": "hard", "router.capacity": 40}, r"config\.router\.capacity=40 .* k=28, or 0"),
        ({"router.name": "straight_through", "router.dykstra": 9}, r"config\.router\.dykstra=9 .* 0 for .*straight_"),
        ({"router.name": "balanced", "router.limit": 2.0}, r"config\.router\.limit=2\.0 .* at least 2\.24: 32 experts"),
        ({"moe.blocks": (5, 8)}, r"config\.moe\.blocks=\(5, 8\) .* counted from 0 to 7"),
        ({"batch_size": 96}, r"config\.batch_size=96 .* multiple of 64: moe\.group_images=8 times 8 devices"),
        ({"batch_size": 128, "accumulate": 4}, r"config\.batch_size=128 .* multiple of 256: .* times accumulate=4"),
        ({"moe.num_experts": 20, "mesh": {"expert": 8}}, r"config\.moe\.num_experts=20 .* multiple of the 8 parts"),
        ({"input.size": 230}, r"config\.input\.size=230 .* multiple of the patch size 32"),
    ],
)
def test_incompatible_fields_are_named(fields, message):
    """Single fields are in `test_hostile_commands.py`."""
    config = _on_cpus(get_config())
    config.mesh = fields.pop("mesh", config.mesh)
    with config.ignore_type():
        config.update_from_flattened_dict(fields)
    with pytest.raises(UsageError, match=message):
        validate(config)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"features.layer": "pooled"}, r"features\.layer='pooled' .* one of maps, before_last_block, stage_5"),
        (
            {"features.size": 96, "features.layer": "maps", "model.variant": "mu/2"},
            r"features\.size=96 .* 64: 32 ",
        ),
        ({"moe.group_images": 24}, r"batch_size=50 .* a multiple of 24"),
        ({"router.k": 401}, r"router\.k=401 .* at most the 400 tokens of a group"),
    ],
)
def test_bad_feature_map_fields_are_named(fields, message):
    """Covers a config on maps of a frozen network."""
    config = _on_cpus(get_config("tokens,router=hard"))
    validate(config)
    config.update_from_flattened_dict(fields)
    with pytest.raises(UsageError, match=message):
        validate(config)


def test_full_size_requires_an_accelerator():
    config = get_config()
    with pytest.raises(UsageError, match=r"JAX sees CPUs only: S/32 in batches of 4096 .* imagenet2012 prepared in "):
        RECIPE.prepare(config)
    config.accelerator = False
    RECIPE.prepare(config)
