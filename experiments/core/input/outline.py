"""Data sets in outline: how many images of which shape and how many classes, without a single image.

A program is compiled for shapes alone, so this is enough to compile a run where its data are not. Numbers are those of
TensorFlow Datasets.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import ml_collections
import numpy as np

from experiments.core.config import require_one_of
from experiments.core.input.dataset import Data, divided
from experiments.core.input.examples import Examples, InMemory, Label, OnDisk
from experiments.core.input.sources import Source
from experiments.core.input.stream import blank


class Outline(NamedTuple):
    """A data set that TFDS has: numbers of images, their shape (None: they differ in size), and labels."""

    train: int
    test: int
    shape: tuple[int, int, int] | None
    labels: Mapping[str, Label]


def _one_of(**classes: int) -> dict[str, Label]:
    return {name: Label(name, number) for name, number in classes.items()}


OUTLINES = {
    "digits": Outline(1438, 359, (8, 8, 1), _one_of(label=10, coarse_label=5)),
    "mnist": Outline(60_000, 10_000, (28, 28, 1), _one_of(label=10)),
    "fashion_mnist": Outline(60_000, 10_000, (28, 28, 1), _one_of(label=10)),
    "cifar10": Outline(50_000, 10_000, (32, 32, 3), _one_of(label=10)),
    "cifar100": Outline(50_000, 10_000, (32, 32, 3), _one_of(label=100, coarse_label=20)),
    "imagenet2012": Outline(1_281_167, 50_000, None, _one_of(label=1000)),
    # Of 14,197,122 images the first 51,200 test (`sources.py`).
    "imagenet21k": Outline(14_197_122 - 51_200, 51_200, None, {"labels": Label("labels", 21_843, several=True)}),
}


def outline(config: ml_collections.ConfigDict) -> Data:
    """Makes the data of a config without images: arrays that take no memory, streams that cannot be read."""
    require_one_of("dataset", config.dataset, OUTLINES)
    known, name = OUTLINES[config.dataset], config.get("label", "label")
    require_one_of("label", name, known.labels)
    label = known.labels[name]
    source = Source(_examples(known, label, known.train), _examples(known, label, known.test), label.num_classes)
    return divided(config, source)


def _examples(known: Outline, label: Label, number: int) -> Examples:
    if known.shape is None:
        return OnDisk("", "", label, range(number))  # which opens nothing before it is read
    # Not all alike, for what divides by the deviation of the pixels.
    column: Any = np.uint8(255) * (np.arange(known.shape[1], dtype=np.uint8) % np.uint8(2))
    images = np.broadcast_to(column[:, None], (number, *known.shape))
    return InMemory({"image": images, "label": blank((number, *label.blank.shape), label.blank.dtype)})
