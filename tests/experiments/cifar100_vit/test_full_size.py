"""The full size, ViT-B/16 at 384 pixels, on eight devices: where its parameters lie; and a small one, compiled."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from configs.cifar100_vit import get_config
from experiments.cifar100_vit.experiment import RECIPE
from experiments.core.input.dataset import Data
from experiments.core.training import feed, step, train
from experiments.core.training import mesh as mesh_lib
from tests.experiments.cifar100_vit.tiny import tiny_config

# The published number at 224 pixels and 1000 classes, less the class token's position; with 100 classes and 24 x 24
# patches in the place of 1000 and 14 x 14.
PARAMETERS = 86_567_656 - 768 - 900 * 769 + (24**2 - 14**2) * 768


EXAMPLES = {"image": np.zeros((8, 8, 8, 1), np.uint8), "label": np.zeros(8, np.int32)}


def train_step(config, num_classes, image, size):
    """The state of a run on two copies of the model in four parts, and what lowers its train step."""
    config.update(pretrained="", accelerator=False, batch_size=8, eval_batch_size=8, mesh={"data": 2, "fsdp": 4})
    train.validate(config)
    RECIPE.validate(config)
    examples = {"image": np.zeros((8, *image), np.uint8), "label": np.zeros(8, np.int32)}
    experiment = RECIPE.build(config, Data(examples, examples, num_classes, "test"))
    mesh = mesh_lib.make(config)
    seed = mesh_lib.put(np.int32(0), mesh_lib.replicated(mesh))
    rows = mesh_lib.batch_sharding(mesh, axis=1)
    batch = {
        "image": jax.ShapeDtypeStruct((1, 8, *size), jnp.uint8, sharding=rows),
        "label": jax.ShapeDtypeStruct((1, 8), jnp.int32, sharding=rows),
    }
    with jax.set_mesh(mesh):
        begun = step.abstract(experiment, seed, mesh)
        step_of = jax.jit(
            step.make_train(experiment, config.steps, feed.Streamed.take),
            donate_argnums=0,
            out_shardings=(jax.tree.map(lambda leaf: leaf.sharding, begun), mesh_lib.replicated(mesh)),
        )

    def lower():
        with jax.set_mesh(mesh):
            return step_of.lower(begun, seed, {}, batch, np.int32(0))

    return begun.params, lower


def bytes_on_a_device(params):
    return 4 * sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in jax.tree.leaves(params))


def test_the_parameters_are_divided_over_eight_devices():
    params, _ = train_step(get_config(), 100, (32, 32, 3), (384, 384, 3))
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params)) == PARAMETERS
    blocks = params["Transformer"]["encoderblock"]
    assert blocks["MlpBlock_0"]["Dense_0"]["kernel"].sharding.spec == PartitionSpec(None, None, "fsdp")
    # A quarter of the parameters to a device, but for norms and biases, which are whole.
    assert PARAMETERS <= bytes_on_a_device(params) < 1.01 * PARAMETERS


def test_a_compiled_step_updates_in_place_and_every_device_sees_one_image():
    config = tiny_config("small,loss=xent", model__scan=True, model__width=64, model__mlp_dim=128)
    params, lower = train_step(config, 10, (8, 8, 1), (8, 8, 1))
    compiled = lower().compile()
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == pytest.approx(2 * bytes_on_a_device(params), rel=1e-2)  # with the momentum
    program = compiled.as_text()
    assert "f32[1,16,64]" in program
    assert not any(f"[{images},16,64" in program for images in (2, 4, 8))
    assert "all-gather" in program


def test_blocks_are_computed_again_on_request():
    def program(remat):
        config = tiny_config("small,loss=xent", model__remat=remat, model__scan=True)
        experiment = RECIPE.build(config, Data(EXAMPLES, EXAMPLES, 10, "test"))
        params = jax.eval_shape(experiment.init, jax.random.key(0))
        batch = EXAMPLES | {"image": jax.ShapeDtypeStruct((8, 8, 8, 1), jnp.float32)}
        return str(jax.make_jaxpr(jax.grad(experiment.loss, has_aux=True))(params, batch, jax.random.key(0), 0.5))

    assert "remat" in program(True)
    assert "remat" not in program(False)
