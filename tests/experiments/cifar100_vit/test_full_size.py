"""The full size, ViT-B/16 at 384 pixels, on eight devices: a step takes minutes on a CPU, here it is traced."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from configs.cifar100_vit import get_config
from experiments.cifar100_vit.experiment import RECIPE
from experiments.core.input.dataset import Data
from experiments.core.training import feed, state, step, train
from experiments.core.training import mesh as mesh_lib

# The published number at 224 pixels and 1000 classes, less the class token's position; with 100 classes and 24 x 24
# patches in the place of 1000 and 14 x 14.
PARAMETERS = 86_567_656 - 768 - 900 * 769 + (24**2 - 14**2) * 768


def test_the_train_step_is_divided_over_eight_devices():
    """With batches of 8, two copies of the model in four parts: traced, and where everything lies."""
    config = get_config()
    config.update(pretrained="", accelerator=False, batch_size=8, mesh={"data": 2, "fsdp": 4})
    train.validate(config)
    RECIPE.validate(config)
    examples = {"image": np.zeros((8, 32, 32, 3), np.uint8), "label": np.zeros(8, np.int32)}
    experiment = RECIPE.build(config, Data(examples, examples, 100, "test"))
    mesh = mesh_lib.make(config)
    seed = mesh_lib.put(np.int32(0), mesh_lib.replicated(mesh))
    rows = mesh_lib.batch_sharding(mesh, axis=1)
    batch = {
        "image": jax.ShapeDtypeStruct((1, 8, 384, 384, 3), jnp.uint8, sharding=rows),
        "label": jax.ShapeDtypeStruct((1, 8), jnp.int32, sharding=rows),
    }
    with jax.set_mesh(mesh):
        begun = state.abstract(experiment, seed, mesh)
        train_step = jax.jit(step.make_train(experiment, config.steps, feed.Streamed.take), donate_argnums=0)
        traced = train_step.trace(begun, seed, {}, batch, np.int32(0))
    params = jax.tree.leaves(begun.params)
    assert sum(math.prod(leaf.shape) for leaf in params) == PARAMETERS
    blocks = begun.params["Transformer"]["encoderblock"]
    assert blocks["MlpBlock_0"]["Dense_0"]["kernel"].sharding.spec == PartitionSpec(None, None, "fsdp")
    # A quarter of the parameters to a device, but for norms and biases, which are whole.
    on_device = sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in params)
    assert PARAMETERS / 4 <= on_device < 1.01 * PARAMETERS / 4
    ended, measured = traced.out_info
    assert jax.tree.map(jnp.shape, ended.params) == jax.tree.map(jnp.shape, begun.params)
    assert measured["loss"].shape == (1,)
    program = str(traced.jaxpr)
    assert "f32[8,577,768]" in program
    assert "remat2" in program or "checkpoint" in program  # activations are computed again
