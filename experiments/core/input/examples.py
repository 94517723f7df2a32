"""Labelled images by index: decoded in memory, or read from disk as they are asked for.

Both are one thing to whoever reads examples one by one (`pipeline.py`); only what lies in memory
are also available as arrays, and so stay on the devices.
"""

import dataclasses
import io
import threading
from typing import Any, Protocol

import numpy as np
from PIL import Image

from experiments.core.input.stream import Arrays, blank

# Two threads that are the first to use TFDS can wait for each other forever. One imports it, the other looks something
# up in it; for that both need a lock of a module and one of TFDS's own, and each may have got one of them.
_OPENING = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Label:
    """What examples are classified by: a feature that names one class, or `several` at once, perhaps none."""

    feature: str
    num_classes: int
    several: bool = False

    @property
    def dtype(self) -> Any:
        """Of the labels."""
        return np.uint8 if self.several else np.int32

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a single label."""
        return (self.num_classes,) if self.several else ()

    def encode(self, value: Any) -> np.ndarray:
        """The label of an example: its class, or 1 for each of its classes and 0 for the others (multi-hot)."""
        if not self.several:
            return np.asarray(value, self.dtype)
        classes = np.asarray(value, np.int64)
        vector = np.zeros(self.shape, self.dtype)
        vector[classes[classes >= 0]] = 1  # TFDS writes -1 for a class that is not known
        return vector


class Examples(Protocol):
    """`image` [H, W, C] in uint8 and `label` of each example; it can be sent to other processes.

    A label is a class in int32; of a data set with several classes an image, a multi-hot vector [num_classes] in uint8.
    """

    def __len__(self) -> int:
        """The number of examples."""
        ...

    def __getitem__(self, index: int) -> Arrays:
        """The example at `index`."""
        ...

    def part(self, start: int, stop: int) -> "Examples":
        """The examples from `start` to before `stop`."""
        ...

    @property
    def channels(self) -> int:
        """C of the images."""
        ...

    @property
    def label_like(self) -> np.ndarray:
        """An array of the shape and type of a label, whatever is in it."""
        ...


@dataclasses.dataclass(frozen=True)
class InMemory:
    """Examples as arrays: `image` [N, H, W, C] in uint8, and `label` [N] in int32 or [N, num_classes] in uint8."""

    arrays: Arrays

    def __len__(self) -> int:
        return len(self.arrays["label"])

    def __getitem__(self, index: int) -> Arrays:
        return {name: array[index] for name, array in self.arrays.items()}

    def part(self, start: int, stop: int) -> "InMemory":
        """Views of the arrays."""
        return InMemory({name: array[start:stop] for name, array in self.arrays.items()})

    @property
    def channels(self) -> int:
        """As the arrays have it."""
        return self.arrays["image"].shape[-1]

    @property
    def label_like(self) -> np.ndarray:
        """As the arrays have it."""
        labels = self.arrays["label"]
        return blank(labels.shape[1:], labels.dtype)


class OnDisk:
    """Examples `start` to before `stop` of a split that TFDS has prepared, decoded one at a time to RGB.

    Files are opened at the first example, in each process anew: what is sent to a worker is names.
    """

    def __init__(self, directory: str, split: str, label: Label, start: int, stop: int):
        self.directory, self.split, self.label, self.start, self.stop = directory, split, label, start, stop
        self._source: Any = None

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, index: int) -> Arrays:
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        example = self._open()[self.start + index]
        # Not left to TFDS, which returns photographs in grey or CMYK with as many channels as they happen to have.
        with Image.open(io.BytesIO(example["image"])) as image:
            decoded = np.asarray(image.convert("RGB"))
        return {"image": decoded, "label": self.label.encode(example[self.label.feature])}

    def part(self, start: int, stop: int) -> "OnDisk":
        """The same files, a part of the indices."""
        return OnDisk(self.directory, self.split, self.label, self.start + start, self.start + stop)

    @property
    def channels(self) -> int:
        """Of RGB."""
        return 3

    @property
    def label_like(self) -> np.ndarray:
        """As the label encodes it."""
        return blank(self.label.shape, self.label.dtype)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_source": None}

    def _open(self) -> Any:
        with _OPENING:
            if self._source is None:
                import tensorflow_datasets as tfds

                builder = tfds.builder_from_directory(self.directory)
                self._source = builder.as_data_source(self.split, decoders={"image": tfds.decode.SkipDecoding()})
            return self._source
