"""Labelled images by index: decoded in memory, or read from disk as they are asked for.

Code that reads examples one by one (`pipeline.py`) treats both alike; only those that lie in memory
are also available as arrays, and so stay on the devices.
"""

import dataclasses
import io
import mmap
import os
import struct
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from experiments.core.errors import DamagedError, UsageError
from experiments.core.input.stream import Arrays, blank

# Two threads that are the first to use TFDS can wait for each other forever. One imports it, the other looks something
# up in it; for that both need a lock of a module and one of TFDS's own, and each may have got one of them.
_OPENING = threading.Lock()
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # of Pillow, by the number of channels
# A record of TFRecord: the number of its bytes and a checksum of that, these bytes, another checksum.
_HEADER, _FOOTER = struct.Struct("<QI"), 4


@dataclasses.dataclass(frozen=True)
class Label:
    """Classes of examples: a feature that names one class, or `several` at once, perhaps none.

    For plain integers the number of classes is 0 until all of them are read.
    """

    feature: str
    num_classes: int
    several: bool = False

    @property
    def dtype(self) -> Any:
        """The type of a label."""
        return np.uint8 if self.several else np.int32

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a single label."""
        return (self.num_classes,) if self.several else ()

    def encode(self, value: Any) -> np.ndarray:
        """The label of an example: its class, or 1 for each of its classes and 0 for the others (multi-hot)."""
        if not self.several:
            return self.checked(np.asarray(value))
        classes = np.asarray(value, np.int64)
        vector = np.zeros(self.shape, self.dtype)
        vector[classes[classes >= 0]] = 1  # TFDS writes -1 for a class that is not known
        return vector

    def checked(self, classes: np.ndarray) -> np.ndarray:
        """Classes of any shape, in int32.

        Raises:
          UsageError: one is below 0, as where a class is not known, or too large.
        """
        wrong = classes[(classes < 0) | (classes >= self.num_classes)]
        if wrong.size:
            raise UsageError(
                f"config.label={self.feature!r} is not allowed: it must be a class from 0 to {self.num_classes - 1} "
                f"in every example, and in {wrong.size} of {classes.size} it is another, such as {wrong[0]}"
            )
        return classes.astype(self.dtype)


def decode(stored: bytes | np.ndarray, channels: int) -> np.ndarray:
    """The image [H, W, channels] in uint8 that is `stored` as a file, in colour or grey, with a palette, or alpha.

    Arrays are taken as they are.

    Raises:
      UsageError: the file has values of more than 8 bits.
    """
    if isinstance(stored, np.ndarray):
        return stored
    # Not left to TFDS, which returns as many channels as a file happens to have, and of a palette the indices.
    with Image.open(io.BytesIO(stored)) as image:
        if image.mode.startswith(("I", "F")):
            raise UsageError(
                f"the feature image has a file of Pillow's mode {image.mode!r}, which has more than 8 bits a channel: "
                "it must have 8"
            )
        pixels = np.asarray(image.convert(_MODES[channels]))
    return pixels.reshape(*pixels.shape[:2], channels)


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
        """The number of channels of the arrays."""
        return self.arrays["image"].shape[-1]

    @property
    def label_like(self) -> np.ndarray:
        """An array of zeros like one of the labels."""
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
        return {
            "image": decode(example["image"], self.channels),
            "label": self.label.encode(example[self.label.feature]),
        }

    def part(self, start: int, stop: int) -> "OnDisk":
        """The same files, a part of the indices."""
        return OnDisk(self.directory, self.split, self.label, self.start + start, self.start + stop)

    @property
    def channels(self) -> int:
        """Three: images are decoded to RGB."""
        return 3

    @property
    def label_like(self) -> np.ndarray:
        """An array of zeros like an encoded label."""
        return blank(self.label.shape, self.label.dtype)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_source": None}

    def _open(self) -> Any:
        with _OPENING:
            if self._source is None:
                import tensorflow_datasets as tfds

                self._source = open_split(tfds.builder_from_directory(self.directory), self.split)
            return self._source


# Labelled images by index, which can be sent to other processes. An example is `image` [H, W, C] in uint8 and `label`:
# a class in int32, or where images have several classes, a multi-hot vector [num_classes] in uint8.
Examples = InMemory | OnDisk


def open_split(builder: Any, split: str) -> Any:
    """Examples by index of what a builder of TFDS has prepared, their images as they are stored."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.data_sources.base import BaseDataSource

    decoders = {"image": tfds.decode.SkipDecoding()}
    if tfds.core.FileFormat.ARRAY_RECORD in builder.info.available_file_formats():
        return builder.as_data_source(split, decoders=decoders)
    source = BaseDataSource(builder.info, split, decoders)
    source.data_source = TFRecords(builder.info.splits[split].filepaths)
    if len(source) != (expected := builder.info.splits[split].num_examples):
        how = f"its split {split} has {len(source)} examples in the place of {expected}"
        raise DamagedError(builder.data_dir, how, "prepare or copy the data set again")
    return source


class TFRecords:
    """The records of TFRecord files by index, without TensorFlow; TFDS has no random access to them.

    Files are mapped into memory, and looked through for where records begin. Checksums are left alone.
    """

    def __init__(self, paths: Iterable[Path]):
        self._files: list[mmap.mmap] = []
        self._starts: list[np.ndarray] = []  # of the records of each file
        for path in paths:
            with open(path, "rb") as file:
                if not os.fstat(file.fileno()).st_size:
                    continue  # a part without an example, which cannot be mapped
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            starts, position = [], 0
            while position + _HEADER.size <= len(data):
                starts.append(position)
                position += _HEADER.size + _HEADER.unpack_from(data, position)[0] + _FOOTER
            if position != len(data):
                raise DamagedError(path, "it does not end where a record does", "prepare or copy the data set again")
            self._files.append(data)
            self._starts.append(np.asarray(starts))
        self._ends = np.cumsum([len(starts) for starts in self._starts])

    def __len__(self) -> int:
        return sum(map(len, self._starts))

    def __getitem__(self, index: int) -> bytes:
        number = int(np.searchsorted(self._ends, index, side="right"))
        data = self._files[number]
        start = int(self._starts[number][index - self._ends[number]])  # counted from the end of its file
        length, _ = _HEADER.unpack_from(data, start)
        return data[start + _HEADER.size : start + _HEADER.size + length]
