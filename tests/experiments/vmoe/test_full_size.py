"""V-MoE S/32 as its config has it, on eight devices: where its parameters lie. Its steps are in test_exchange.py."""

import math

import jax
import numpy as np
from jax.sharding import PartitionSpec

from configs.vmoe import get_config
from experiments.core.input.dataset import Data
from experiments.core.input.stream import blank
from experiments.core.training import train
from experiments.core.training.step import Program
from experiments.vmoe.experiment import RECIPE

BATCH, NUM_CLASSES = 64, 1000


def test_parameters_are_spread_over_devices():
    config = get_config("router=relaxed")
    config.update(accelerator=False, batch_size=BATCH, eval_batch_size=BATCH, mesh={"data": 1, "fsdp": 2, "expert": 4})
    train.validate(config)
    RECIPE.validate(config)
    images = blank((BATCH, 224, 224, 3), np.uint8)
    data = Data({"image": images, "label": np.zeros(BATCH, np.int32)}, {}, NUM_CLASSES, "test")
    begun = Program(RECIPE, config, data).state

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
