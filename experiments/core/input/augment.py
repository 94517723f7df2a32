"""Augmentation of a batch of images on the device, before a network sees it: uint8 in, floats in [-1, 1] out.

name         in training                                          in evaluation
inception    a random part of it, resized; flipped                resized
crop         a random square of that side; flipped                the one in the middle
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

from experiments.core.input.images import AREA, ASPECT

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


def crop(key: Array, images: Array, size: int) -> Array:
    """A random square of each, S pixels wide, flipped half the time; `ValueError` for images that are smaller."""
    rooms = _rooms(images, size)

    def crop_image(key: Array, image: Array) -> Array:
        place_key, flip_key = jax.random.split(key)
        top, left = jax.random.randint(place_key, (2,), 0, jnp.array(rooms) + 1)
        part = jax.lax.dynamic_slice(image, (top, left, 0), (size, size, image.shape[-1]))
        return jnp.where(jax.random.bernoulli(flip_key), part[:, ::-1], part)

    return normalise(_by_row(crop_image, key, images))


def central_crop(images: Array, size: int) -> Array:
    """The square in the middle of each; `ValueError` for images that are smaller."""
    top, left = (room // 2 for room in _rooms(images, size))
    return normalise(images[:, top : top + size, left : left + size])


def _rooms(images: Array, size: int) -> tuple[int, int]:
    height, width = images.shape[1:3]
    if min(height, width) < size:
        raise ValueError(f"images of {height} x {width} pixels have no part of {size} x {size}")
    return height - size, width - size


def crop_flip(key: Array, images: Array, size: int) -> Array:
    """Shifted by up to 4 pixels, black coming in at the sides, and flipped half the time."""
    if images.shape[1:3] != (size, size):
        images = (resize(images, size) + 1.0) * 127.5

    def shift_image(key: Array, image: Array) -> Array:
        shift_key, flip_key = jax.random.split(key)
        top, left = jax.random.randint(shift_key, (2,), 0, 2 * PADDING + 1)
        padded = jnp.pad(image, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)))
        crop = jax.lax.dynamic_slice(padded, (top, left, 0), image.shape)
        return jnp.where(jax.random.bernoulli(flip_key), crop[:, ::-1], crop)

    return normalise(_by_row(shift_image, key, images))


_TRIES = 8  # boxes that are drawn at once, of which the first that fits is taken; of a square image nearly all fit


def inception_box(key: Array, height: int, width: int) -> tuple[Array, Array, Array, Array]:
    """Top, left, height and width of an inception crop, with the distribution of `images.inception_box`."""
    smallest, largest = (part * height * width for part in AREA)
    aspect_key, height_key, top_key, left_key = jax.random.split(key, 4)
    aspect = jax.random.uniform(aspect_key, (_TRIES,), minval=ASPECT[0], maxval=ASPECT[1])
    low = jnp.ceil(jnp.sqrt(smallest / aspect))
    high = jnp.floor(jnp.minimum(jnp.minimum(jnp.sqrt(largest / aspect), height), width / aspect))
    heights = low + jnp.floor(jax.random.uniform(height_key, (_TRIES,)) * (high - low + 1))
    widths = jnp.round(heights * aspect)
    area = heights * widths
    fits = (low <= high) & (smallest <= area) & (area <= largest) & (widths > 0) & (widths <= width)
    first = jnp.argmax(fits)
    box_height, box_width = (
        jnp.where(fits.any(), tried[first], side) for tried, side in ((heights, height), (widths, width))
    )

    def start(key: Array, room: Array) -> Array:
        return jnp.floor(jax.random.uniform(key) * (room + 1))

    return start(top_key, height - box_height), start(left_key, width - box_width), box_height, box_width


def inception(key: Array, images: Array, size: int) -> Array:
    """A random part of each, from 5 to 100 % of its area, resized to a square, and flipped half the time."""
    _, height, width, _ = images.shape

    def crop_image(key: Array, image: Array) -> Array:
        box_key, flip_key = jax.random.split(key)
        top, left, box_height, box_width = inception_box(box_key, height, width)
        rows, columns = _linear(top, box_height, height, size), _linear(left, box_width, width, size)
        columns = jnp.where(jax.random.bernoulli(flip_key), columns[::-1], columns)
        return jnp.einsum("yi,xj,ijc->yxc", rows, columns, image.astype(jnp.float32), precision="highest")

    return normalise(_by_row(crop_image, key, images))


def _linear(start: Array, length: Array, size: int, side: int) -> Array:
    """Weights [side, size] that resize the `length` of `size` pixels from `start` on to `side`, as Pillow's bilinear.

    Nothing beyond the part comes in; a part that shrinks is smoothed.
    """
    step = length / side
    centres = start + (jnp.arange(side, dtype=jnp.float32) + 0.5) * step
    pixels = jnp.arange(size, dtype=jnp.float32) + 0.5
    distance = jnp.abs(pixels[None] - centres[:, None]) / jnp.maximum(step, 1.0)
    inside = (pixels > start) & (pixels < start + length)
    weights = jnp.where(inside[None], jnp.maximum(1.0 - distance, 0.0), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


def _by_row(one: Callable[[Array, Array], Array], key: Array, images: Array) -> Array:
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(images.shape[0]))
    return jax.vmap(one)(keys, images)


# By recipe, functions of a key, images and the side of the squares that result.
TRAIN: dict[str, Augment] = {
    "inception": inception,
    "crop": crop,
    "crop_flip": crop_flip,
    "none": lambda key, images, size: resize(images, size),
}
EVALUATION: dict[str, Callable[[Array, int], Array]] = {**dict.fromkeys(TRAIN, resize), "crop": central_crop}
