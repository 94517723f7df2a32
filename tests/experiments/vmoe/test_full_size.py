"""V-MoE S/32 as its config has it, on eight devices: where its parameters lie, and a train step, traced."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from configs.vmoe import get_config
from experiments.core.input.dataset import Data
from experiments.core.training import feed, step, train
from experiments.core.training import mesh as mesh_lib
from experiments.vmoe.experiment import RECIPE

BATCH, NUM_CLASSES = 64, 1000


def test_a_train_step_of_the_whole_network_on_eight_devices():
    config = get_config("router=relaxed")
    config.update(accelerator=False, batch_size=BATCH, eval_batch_size=BATCH, mesh={"data": 1, "fsdp": 2, "expert": 4})
    train.validate(config)
    RECIPE.validate(config)
    images = np.zeros((1, 224, 224, 3), np.uint8)
    data = Data({"image": images, "label": np.zeros(1, np.int32)}, {}, NUM_CLASSES, "test")
    experiment = RECIPE.build(config, data)
    mesh = mesh_lib.make(config)
    seed = mesh_lib.put(np.int32(0), mesh_lib.replicated(mesh))
    rows = mesh_lib.batch_sharding(mesh, 1)
    batch = {
        "image": jax.ShapeDtypeStruct((1, BATCH, 224, 224, 3), jnp.uint8, sharding=rows),
        "label": jax.ShapeDtypeStruct((1, BATCH), jnp.int32, sharding=rows),
    }
    with jax.set_mesh(mesh):
        begun = step.abstract(experiment, seed, mesh)
        take = jax.jit(step.make_train(experiment, 1, feed.Streamed.take), donate_argnums=0)
        traced = take.lower(begun, seed, {}, batch, np.int32(0))

    leaves = jax.tree.leaves(begun.params)
    parameters = sum(math.prod(leaf.shape) for leaf in leaves)
    assert round(parameters / 1e6, 1) == 157.8
    assert begun.params["cls"].shape == (1, 1, 512)
    assert begun.params["pre_logits"]["kernel"].shape == (512, 512)
    blocks = begun.params["Transformer"]
    assert [name for name in blocks if "MoeLayer_0" in blocks[name]] == ["encoderblock_5", "encoderblock_7"]
    layer = blocks["encoderblock_5"]["MoeLayer_0"]
    assert layer["router"].shape == (512, 32)
    kernel = layer["experts"]["Dense_0"]["kernel"]
    assert (kernel.shape, kernel.sharding.spec) == ((32, 512, 2048), PartitionSpec("expert", None, "fsdp"))
    on_device = sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in leaves)
    assert on_device < 0.2 * parameters  # an eighth of the experts', half of the others'

    ended, measured = traced.out_info
    assert jax.tree.map(jnp.shape, ended.params) == jax.tree.map(jnp.shape, begun.params)
    assert measured["router"].keys() == {"block_5", "block_7"}
    assert measured["loss"].shape == (1,)
    text = traced.as_text()
    # Slots of 8 groups' 400 tokens, there and back, forwards and backwards, in each of two layers.
    assert text.count("stablehlo.all_to_all") == 8
    assert text.count("stablehlo.all_to_all") == text.count("tensor<1x32x28x512xbf16>) -> tensor<4x8x28x512xbf16>") * 2
