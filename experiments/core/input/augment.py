"""Augmentation of a batch of images on the device, before a network sees it: uint8 in, floats in [-1, 1] out.

The augmentations of `images.py` (its table says what each does) as functions of a key, for images that all
have one size. They cost the host nothing, and images travel to the device as small as they are
stored: CIFAR's 3 kB instead of the 442 kB they take at 384 pixels.

The key of an example is folded from the batch's and its row, so the outcome does not depend on the
devices that a batch is divided over. It is random in the same way as on the host, but not the same
draw. Values are not rounded after resizing. `B` batch, `H` height, `W` width, `C` channels, `S` side of the result.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from experiments.core.input.images import AREA, ASPECT, PADDING, small_side

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


def resize_and_crop(images: Array, size: int) -> Array:
    """The evaluation of `big_vision`: the middle of images [B, H, W, C] whose smaller side is resized to 7/6 S."""
    scale, (height, width) = _resize_small(images, size)
    top, left = (height - size) // 2, (width - size) // 2
    return normalise(jax.vmap(lambda image: _resample(image, scale, (-top, -left), size))(images))


def crop_flip(key: Array, images: Array, size: int) -> Array:
    """Shifted by up to 4 pixels, black coming in at the sides, and flipped half the time."""
    if images.shape[1:3] != (size, size):
        images = _denormalised(resize(images, size))

    def one(key: Array, image: Array) -> Array:
        shift_key, flip_key = jax.random.split(key)
        top, left = jax.random.randint(shift_key, (2,), 0, 2 * PADDING + 1)
        padded = jnp.pad(image, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)))
        return _flip(flip_key, jax.lax.dynamic_slice(padded, (top, left, 0), image.shape))

    return normalise(_each(one, key, images))


def inception(key: Array, images: Array, size: int) -> Array:
    """A random part, resized to [B, S, S, C] and flipped half the time.

    Sides and positions are not rounded to pixels, and where an enlarged part ends, bilinear
    interpolation still sees the neighbouring pixel of the image, which on the host is cut off.
    """
    height, width = images.shape[1:3]

    def one(key: Array, image: Array) -> Array:
        box_key, flip_key = jax.random.split(key)
        top, left, box_height, box_width = inception_box(box_key, height, width)
        scale = size / box_height, size / box_width
        return _flip(flip_key, _resample(image, scale, (-top * scale[0], -left * scale[1]), size))

    return normalise(_each(one, key, images))


def inception_box(key: Array, height: int, width: int) -> tuple[Array, Array, Array, Array]:
    """Top, left, height and width of an inception crop, by the law of `images.inception_box` but continuous."""
    aspect_key, height_key, top_key, left_key = jax.random.split(key, 4)
    smallest, largest = (part * height * width for part in AREA)
    aspect = jax.random.uniform(aspect_key, minval=ASPECT[0], maxval=ASPECT[1])
    low = jnp.sqrt(smallest / aspect)
    high = jnp.minimum(jnp.minimum(jnp.sqrt(largest / aspect), height), width / aspect)
    box_height = jax.random.uniform(height_key, minval=jnp.minimum(low, high), maxval=high)
    box_width = box_height * aspect
    top = jax.random.uniform(top_key) * (height - box_height)
    left = jax.random.uniform(left_key) * (width - box_width)
    return top, left, box_height, box_width


def big_vision(key: Array, images: Array, size: int) -> Array:
    """The smaller side resized to 7/6 S, a random crop [B, S, S, C] of that, flipped half the time."""
    scale, (height, width) = _resize_small(images, size)

    def one(key: Array, image: Array) -> Array:
        top_key, left_key, flip_key = jax.random.split(key, 3)
        top = jax.random.randint(top_key, (), 0, height - size + 1)
        left = jax.random.randint(left_key, (), 0, width - size + 1)
        return _flip(flip_key, _resample(image, scale, (-top, -left), size))

    return normalise(_each(one, key, images))


TRAIN: dict[str, Augment] = {
    "inception": inception,
    "big_vision": big_vision,
    "crop_flip": crop_flip,
    "none": lambda key, images, size: resize(images, size),
}
EVALUATION = dict.fromkeys(TRAIN, resize) | {"big_vision": resize_and_crop}


def _resize_small(images: Array, size: int) -> tuple[tuple[float, float], tuple[int, int]]:
    """Scales and sides that bring the smaller side of images [B, H, W, C] to 7/6 S; sides are whole pixels."""
    height, width = images.shape[1:3]
    factor = small_side(size) / min(height, width)
    sides = round(height * factor), round(width * factor)
    return (sides[0] / height, sides[1] / width), sides


def _each(one: Callable[[Array, Array], Array], key: Array, images: Array) -> Array:
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(images.shape[0]))
    return jax.vmap(one)(keys, images)


def _flip(key: Array, image: Array) -> Array:
    return jnp.where(jax.random.bernoulli(key), image[:, ::-1], image)


def _denormalised(images: Array) -> Array:
    return (images + 1.0) * 127.5


def _resample(image: Array, scale: tuple, translation: tuple, size: int) -> Array:
    """The square [S, S, C] whose pixel y shows the image at (y - translation) / scale, bilinear with antialias."""
    return jax.image.scale_and_translate(
        image.astype(jnp.float32),
        (size, size, image.shape[2]),
        (0, 1),
        jnp.asarray(scale, jnp.float32),
        jnp.asarray(translation, jnp.float32),
        "linear",
        antialias=True,
    )
