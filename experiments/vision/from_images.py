"""Images as a transformer takes them, by `config.input`, in every experiment that has one."""

from collections.abc import Callable

import jax
import ml_collections

from experiments.core.input import augment


def augment_and_prepare(
    config: ml_collections.ConfigDict,
) -> tuple[Callable[[jax.Array, jax.Array], jax.Array], Callable[[jax.Array], jax.Array]]:
    """Of a key and a training batch, and of images to evaluate on: images [B, H, W, C] to floats in [-1, 1].

    The images are in uint8, or with `config.input.augment_on="host"` those that the host has augmented.
    """
    size, recipe = config.input.size, config.input.recipe
    on_device = config.input.augment_on == "device"

    def augmented(key: jax.Array, images: jax.Array) -> jax.Array:
        return augment.TRAIN[recipe](key, images, size) if on_device else augment.normalise(images)

    def prepared(images: jax.Array) -> jax.Array:
        return augment.EVALUATION[recipe](images, size) if on_device else augment.normalise(images)

    return augmented, prepared
