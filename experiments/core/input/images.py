"""Augmentation of an image on the host, before a network sees it: NumPy and Pillow, uint8 in and out.

name         in training                                          in evaluation
inception    a random part of it, resized; flipped                resized
big_vision   resize_small(7/6 size) | random_crop(size) | flip    resize_small(7/6 size) | central_crop(size)
none         resized                                              resized

`size` is the side of the square that results. Images stay uint8 until `augment.normalise` maps them to [-1, 1] on the
device. Resizing is Pillow's: bilinear, at half-pixel centres, with antialias when an image shrinks, and rounded to the
nearest uint8. `tf.image.resize` in vision_transformer and big_vision has no antialias, and does not round
(vision_transformer) or truncates (big_vision); big_vision's `resize_small` takes means over areas.
"""

import math
from collections.abc import Callable

import numpy as np
from PIL import Image as Pillow

Image = np.ndarray  # [H, W, C] in uint8

AREA = (0.05, 1.0)  # of an inception crop, in parts of the image
ASPECT = (3 / 4, 4 / 3)  # its width over its height


def resize(image: Image, height: int, width: int) -> Image:
    """`image` at another size."""
    if image.shape[:2] == (height, width):
        return image
    grey = image.shape[2] == 1
    pillow = Pillow.fromarray(np.ascontiguousarray(image[..., 0] if grey else image))
    resized = np.asarray(pillow.resize((width, height), Pillow.Resampling.BILINEAR))
    return resized[..., None] if grey else resized


def square(image: Image, size: int) -> Image:
    """`image` resized to a square, whatever its aspect."""
    return resize(image, size, size)


def resize_small(image: Image, size: int) -> Image:
    """`image` resized, its aspect kept, to be cropped to `size`: for 384 its smaller side is 448."""
    height, width = image.shape[:2]
    factor = round(size * 448 / 384) / min(height, width)
    return resize(image, round(height * factor), round(width * factor))


def random_flip(rng: np.random.Generator, image: Image) -> Image:
    """`image`, or its mirror image half the time."""
    return image[:, ::-1] if rng.random() < 0.5 else image


def inception_box(rng: np.random.Generator, height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width of an inception crop, distributed as TensorFlow's.

    `tf.image.sample_distorted_bounding_box` draws the aspect uniformly, then the height among those that the limits of
    the area allow. An image too long to contain such a box is taken whole.
    """
    smallest, largest = (part * height * width for part in AREA)
    for _ in range(100):
        aspect = rng.uniform(*ASPECT)
        low = math.ceil(math.sqrt(smallest / aspect))
        high = math.floor(min(math.sqrt(largest / aspect), height, width / aspect))
        if low > high:
            continue
        box_height = int(rng.integers(low, high + 1))
        box_width = round(box_height * aspect)
        # Rounding may overstep a limit.
        if smallest <= box_height * box_width <= largest and 0 < box_width <= width:
            top, left = rng.integers(height - box_height + 1), rng.integers(width - box_width + 1)
            return int(top), int(left), box_height, box_width
    return 0, 0, height, width


def _inception(rng: np.random.Generator, image: Image, size: int) -> Image:
    top, left, height, width = inception_box(rng, *image.shape[:2])
    return random_flip(rng, square(image[top : top + height, left : left + width], size))


def _big_vision(rng: np.random.Generator, image: Image, size: int) -> Image:
    larger = resize_small(image, size)
    top, left = (rng.integers(side - size + 1) for side in larger.shape[:2])
    return random_flip(rng, larger[top : top + size, left : left + size])


def _big_vision_evaluation(image: Image, size: int) -> Image:
    larger = resize_small(image, size)
    top, left = ((side - size) // 2 for side in larger.shape[:2])
    return larger[top : top + size, left : left + size]


# By recipe, functions of an image and of the side of the square that results.
TRAIN: dict[str, Callable[[np.random.Generator, Image, int], Image]] = {
    "inception": _inception,
    "big_vision": _big_vision,
    "none": lambda rng, image, size: square(image, size),
}
EVALUATION = dict.fromkeys(TRAIN, square) | {"big_vision": _big_vision_evaluation}
