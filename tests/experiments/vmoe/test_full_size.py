"""V-MoE S/32 on eight devices: its parameters, where they lie, and a real step of two of its blocks, made narrow."""

import math

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from configs.vmoe import get_config
from experiments.core.input.dataset import Data
from experiments.core.training import feed, state, step, train
from experiments.core.training import mesh as mesh_lib
from experiments.vmoe.experiment import RECIPE

NUM_CLASSES = 1000
# The patches and the class token, 8 blocks' norms and attention, 6 MLPs, 2 x 32 experts with their routers, the last
# norm, the layer in front of the head and the head.
WIDTH, MLP, EXPERTS = 512, 2048, 32
BLOCK = 4 * WIDTH + 4 * (WIDTH * WIDTH + WIDTH)
DENSE = WIDTH * MLP + MLP + MLP * WIDTH + WIDTH
EMBEDDING = 32 * 32 * 3 * WIDTH + WIDTH + 49 * WIDTH + WIDTH
HEAD = WIDTH * WIDTH + WIDTH + WIDTH * NUM_CLASSES + NUM_CLASSES  # with the dense layer in front of it
PARAMETERS = EMBEDDING + 8 * BLOCK + 6 * DENSE + 2 * (EXPERTS * DENSE + WIDTH * EXPERTS) + 2 * WIDTH + HEAD


def data():
    """Eight groups of eight images of noise."""
    rng = np.random.default_rng(0)
    examples = {
        "image": rng.integers(0, 256, (64, 224, 224, 3), dtype=np.uint8),
        "label": rng.integers(0, NUM_CLASSES, 64, dtype=np.int32),
    }
    return Data(examples, examples, NUM_CLASSES, "test")


def config_of(**mesh):
    """A single step, in whole precision, of images that are there already."""
    config = get_config("router=relaxed")
    config.update(
        accelerator=False,
        feed="resident",
        batch_size=64,
        eval_batch_size=64,
        steps=1,
        eval_every=1,
        checkpoint_every=1,
        mesh=mesh,
        input={"recipe": "none", "augment_on": "device"},
        optimizer={"warmup_steps": 0},
        model={"dtype": "float32"},
        router={"noise": 0.0},
    )
    return config


def test_parameters_and_where_they_lie():
    assert round(PARAMETERS / 1e6, 1) == 157.8
    config = config_of(data=1, fsdp=2, expert=4)
    train.validate(config)
    RECIPE.validate(config)
    experiment = RECIPE.build(config, data())
    mesh = mesh_lib.make(config)
    with jax.set_mesh(mesh):
        params = state.abstract(experiment, np.int32(0), mesh).params
    leaves = jax.tree.leaves(params)
    assert sum(math.prod(leaf.shape) for leaf in leaves) == PARAMETERS
    layers = [block for block in params["Transformer"].values() if "MoeLayer_0" in block]
    assert [name for name, block in params["Transformer"].items() if "MoeLayer_0" in block] == [
        "encoderblock_5",
        "encoderblock_7",
    ]
    for layer in layers:
        kernel = layer["MoeLayer_0"]["experts"]["Dense_0"]["kernel"]
        assert kernel.shape == (32, 512, 2048)
        assert kernel.sharding.spec == PartitionSpec("expert", None, "fsdp")
    on_device = sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in leaves)
    assert on_device < 0.2 * PARAMETERS  # an eighth of the experts', half of the others'


def test_a_real_step_on_eight_devices():
    """With a small head the loss is about log(classes), and Adam moves what has a gradient by the learning rate."""
    config = config_of(data=2, expert=4)
    # All else, the images and the whole of the routing, is as in S/32, whose products take half a minute.
    config.model.update(depth=2, width=WIDTH // 4, mlp_dim=MLP // 4)
    config.moe.blocks = (0, 1)
    train.validate(config)
    RECIPE.validate(config)
    examples = data()
    experiment = RECIPE.build(config, examples)
    mesh = mesh_lib.make(config)
    seed = mesh_lib.put(np.int32(0), mesh_lib.replicated(mesh))
    batch = {
        name: mesh_lib.put(array[None], mesh_lib.batch_sharding(mesh, 1)) for name, array in examples.train.items()
    }
    with jax.set_mesh(mesh):
        like = state.abstract(experiment, seed, mesh)
        begun = jax.tree_util.tree_map_with_path(_value, like)
        before = [np.array(leaf) for leaf in _watched(begun.params)]
        take = jax.jit(step.make_train(experiment, 1, feed.Streamed.take), donate_argnums=0)
        take = take.lower(begun, seed, {}, batch, np.int32(0)).compile()
        ended, measured = take(begun, seed, {}, batch, np.int32(0))
    np.testing.assert_allclose(measured["loss"], [math.log(NUM_CLASSES)], atol=0.2)
    for block in ("block_0", "block_1"):
        router = measured["router"][block]
        assert 28 <= router["support"][0] < 56
        assert router["experts_per_token_mean"][0] == pytest.approx(32 * 28 / 400, rel=0.1)
        assert 0 <= router["dropped_mass"][0] < 20
    # Adam's first step is the rate times the sign of the gradient, less where that is as small as its epsilon.
    rate, decay = config.optimizer.learning_rate, config.optimizer.weight_decay
    steps = []
    for old, new in zip(before, _watched(ended.params), strict=True):
        step_of = (old * (1 - rate * decay) - np.asarray(new)) / rate
        steps.append(np.abs(step_of).reshape(len(old) if old.ndim == 3 else 1, -1))
        assert steps[-1].max() < 1.01
    routers, (first, last), head = steps[:2], steps[2:4], steps[4]
    for all_of in (*routers, first, head):
        assert np.median(all_of, axis=1).min() > 0.5
    # After the last block only class tokens count, of which not every expert has one.
    assert np.median(last, axis=1).max() > 0.5
    assert not ended.diverged
    # There and back, forwards and backwards, in each of two layers.
    assert take.as_text().count("all-to-all(") >= 8


def _watched(params):
    """The routers, the experts' first kernels [32, D, H], and the head."""
    layers = [params["Transformer"][f"encoderblock_{block}"]["MoeLayer_0"] for block in (0, 1)]
    experts = [layer["experts"]["Dense_0"]["kernel"] for layer in layers]
    return [*(layer["router"] for layer in layers), *experts, params["head"]["kernel"]]


def _value(path, leaf):
    """About as initialised, without drawing millions of random numbers: one row for all, and a small head."""
    name = jax.tree_util.keystr(path)
    if ".params" not in name or leaf.ndim == 0:
        value = np.zeros(leaf.shape, leaf.dtype)
    elif "scale" in name:
        value = np.ones(leaf.shape, leaf.dtype)
    else:
        draw = np.random.default_rng(leaf.size).normal(size=4099) * 0.03  # a prime: no two rows alike
        value = np.resize(draw * (0.5 if "['head']" in name else 1.0), leaf.shape).astype(leaf.dtype)
    return mesh_lib.put(value, leaf.sharding)
