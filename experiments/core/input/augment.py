"""Augmentation of a batch of images on the device, before a network sees it: uint8 in, floats in [-1, 1] out.

name         in training                                          in evaluation
crop_flip    resized, shifted by up to 4 pixels; flipped          resized
none         resized                                              resized

For images that all have one size. The key of an example is folded from the batch's and its row, so the outcome does not
depend on the devices that a batch is divided over. Values are not rounded after resizing. `B` batch, `H` height, `W`
width, `C` channels, `S` side of the result.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

PADDING = 4  # pixels of black that crop_flip puts around an image

Augment = Callable[[Array, Array, int], Array]


def normalise(images: Array) -> Array:
    """uint8 in [0, 255] to float32 in [-1, 1]; floats of the same range, too."""
    return images.astype(jnp.float32) / 127.5 - 1.0


def resize(images: Array, size: int) -> Array:
    """[B, H, W, C] to normalised squares [B, S, S, C], as `images.square` but unrounded."""
    batch, height, width, channels = images.shape
    if (height, width) == (size, size):
        return normalise(images)
    return normalise(
        jax.image.resize(images.astype(jnp.float32), (batch, size, size, channels), "bilinear", antialias=True)
    )


def crop_flip(key: Array, images: Array, size: int) -> Array:
    """Shifted by up to 4 pixels, black coming in at the sides, and flipped half the time."""
    if images.shape[1:3] != (size, size):
        images = (resize(images, size) + 1.0) * 127.5

    def one(key: Array, image: Array) -> Array:
        shift_key, flip_key = jax.random.split(key)
        top, left = jax.random.randint(shift_key, (2,), 0, 2 * PADDING + 1)
        padded = jnp.pad(image, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)))
        crop = jax.lax.dynamic_slice(padded, (top, left, 0), image.shape)
        return jnp.where(jax.random.bernoulli(flip_key), crop[:, ::-1], crop)

    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(images.shape[0]))
    return normalise(jax.vmap(one)(keys, images))


# By recipe, functions of a key, images and the side of the squares that result; evaluation has `resize` for all.
TRAIN: dict[str, Augment] = {"crop_flip": crop_flip, "none": lambda key, images, size: resize(images, size)}
