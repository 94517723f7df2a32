"""The smallest setting of the fine-tuning experiment, that of the demo, on one device; and weights for it."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from flax.traverse_util import flatten_dict

from configs.cifar100_vit import get_config
from experiments.cifar100_vit.suite import DEMO
from experiments.vision import networks
from tests.experiments.support import on_one_device


def tiny_config(argument: str = "small", **fields: Any) -> ml_collections.ConfigDict:
    """Digits and a network of two blocks; `fields` by name, with `__` for the dots."""
    return on_one_device(get_config(argument), DEMO, fields)


def random_params(config: ml_collections.ConfigDict, num_classes: int = 10) -> dict[str, np.ndarray]:
    """Parameters by name, each of them random and the head too, so that all matter."""
    rng = np.random.default_rng(0)
    size = config.input.size
    images = jax.ShapeDtypeStruct((1, size, size, 1), jnp.float32)
    shapes = jax.eval_shape(networks.make(config, num_classes).init, jax.random.key(0), images)["params"]
    scale = {"scale": 1.0, "kernel": 0.2, "bias": 0.1}
    return {
        name: (rng.normal(size=leaf.shape) * scale.get(name.rpartition("/")[2], 0.3)).astype(np.float32)
        for name, leaf in flatten_dict(shapes, sep="/").items()
    }


def write_weights(path: Path, num_classes: int = 10, **fields: Any) -> dict[str, np.ndarray]:
    """Writes random weights for the network of `tiny_config(**fields)`, and returns them by name."""
    params = random_params(tiny_config(**fields), num_classes)
    np.savez(path, allow_pickle=False, **params)
    return params
