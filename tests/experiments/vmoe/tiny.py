"""The smallest setting of V-MoE, that of the demo, on one device."""

from typing import Any

import jax
import ml_collections
import numpy as np

from configs.vmoe import get_config
from experiments.vmoe.experiment import RECIPE
from experiments.vmoe.suite import DEMO
from tests.experiments.support import on_one_device


def tiny_config(argument: str = "small", **fields: Any) -> ml_collections.ConfigDict:
    """Digits and a network of two blocks; `fields` by name, with `__` for the dots."""
    return on_one_device(get_config(argument), DEMO, fields)


def random_params(config: ml_collections.ConfigDict, data: Any) -> Any:
    """Parameters in the place of the initial ones, each of them random and the head too, so that all matter."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(RECIPE.build(config, data).init, jax.random.key(0))
    return jax.tree.map(lambda leaf: (0.2 * rng.normal(size=leaf.shape)).astype(leaf.dtype), shapes)
