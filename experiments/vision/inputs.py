"""The inputs of a network: images, augmented on the way, or the maps that a frozen network makes of them.

config.input       of images: see core/input/pipeline.py
config.features    of maps: see features.py; there is no `config.input` then
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from experiments.core.input import augment
from experiments.vision import features


class Inputs(NamedTuple):
    """How `image` of a batch becomes what the network sees, float32 [B, side, side, C].

    Attributes:
      side: in pixels, or in places of a map.
      augment: of a key and the images of a training batch.
      prepare: of images to evaluate on.
      prepare_stored: of those as the data set has them, where what is evaluated on may be a stream of others.
    """

    side: int
    augment: Callable[[jax.Array, jax.Array], jax.Array]
    prepare: Callable[[jax.Array], jax.Array]
    prepare_stored: Callable[[jax.Array], jax.Array]


def has_features(config: ml_collections.ConfigDict) -> bool:
    """Whether what is trained begins at features that do not change."""
    return config.get("features") is not None


def of(config: ml_collections.ConfigDict) -> Inputs:
    """The inputs that a config asks for: images as floats in [-1, 1], or maps as they are."""
    if has_features(config):
        return Inputs(
            config.features.size // features.place(config), lambda key, maps: _as_floats(maps), _as_floats, _as_floats
        )
    size, recipe = config.input.size, config.input.recipe

    def evaluated(images: jax.Array) -> jax.Array:
        return augment.EVALUATION[recipe](images, size)

    if config.input.augment_on == "host":
        return Inputs(size, lambda key, images: augment.normalise(images), augment.normalise, evaluated)
    return Inputs(size, lambda key, images: augment.TRAIN[recipe](key, images, size), evaluated, evaluated)


def _as_floats(maps: jax.Array) -> jax.Array:
    return maps.astype(jnp.float32)
