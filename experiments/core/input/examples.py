"""Labelled images by index: decoded in memory, where they are also there as arrays, or read from disk one by one."""

import dataclasses
import functools
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

# Two threads that are the first to use TFDS can wait for each other forever: one has the lock of a module, the other a
# lock of TFDS's own, and each needs both.
_OPENING = threading.Lock()
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # of Pillow, by the number of channels
# A record of TFRecord: the number of its bytes and a checksum of that, these bytes, another checksum.
_HEADER, _FOOTER = struct.Struct("<QI"), 4
_AGAIN = "prepare or copy the data set again"


@dataclasses.dataclass(frozen=True)
class Label:
    """Classes of examples: a feature that names one class, or `several` at once, perhaps none.

    For plain integers the number of classes is 0 until all of them are read.
    """

    feature: str
    num_classes: int
    several: bool = False

    @property
    def blank(self) -> np.ndarray:
        """Zeros like the label of an example: int32, or a vector [num_classes] in uint8."""
        return blank((self.num_classes,), np.uint8) if self.several else blank((), np.int32)

    def encode(self, value: Any) -> np.ndarray:
        """The label of an example: its class, or 1 for each of its classes and 0 for the others (multi-hot)."""
        if not self.several:
            return self.checked(np.asarray(value))
        classes = np.asarray(value, np.int64)
        vector = self.blank.copy()
        vector[classes[classes >= 0]] = 1  # TFDS writes -1 for a class that is not known
        return vector

    def checked(self, classes: np.ndarray) -> np.ndarray:
        """Classes of any shape, in int32; `UsageError` if one is below 0, as where it is not known, or too large."""
        wrong = classes[(classes < 0) | (classes >= self.num_classes)]
        if wrong.size:
            raise UsageError(
                f"config.label={self.feature!r} is not allowed: it must be a class from 0 to {self.num_classes - 1} "
                f"in every example, and in {wrong.size} of {classes.size} it is another, such as {wrong[0]}"
            )
        return classes.astype(np.int32)


def decode(file: bytes, channels: int) -> np.ndarray:
    """The image [H, W, channels] in uint8 of a file in colour or grey, with a palette or alpha, of 8 bits a channel."""
    # Not left to TFDS, which returns as many channels as a file happens to have, and of a palette the indices.
    with Image.open(io.BytesIO(file)) as image:
        if image.mode.startswith(("I", "F")):
            raise UsageError(f"an image has Pillow's mode {image.mode!r}: it must have 8 bits a channel")
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

    def reordered(self, order: np.ndarray) -> "InMemory":
        """The examples of these indices."""
        return InMemory({name: array[order] for name, array in self.arrays.items()})

    def label_of(self, index: int) -> np.ndarray:
        """The label of an example."""
        return self.arrays["label"][index]

    @property
    def blank(self) -> Arrays:
        """Zeros like the image and the label of an example."""
        return {name: blank(array.shape[1:], array.dtype) for name, array in self.arrays.items()}


@dataclasses.dataclass(frozen=True)
class OnDisk:
    """Examples of a split that TFDS has prepared, those of the `indices`, decoded one at a time to RGB."""

    directory: str
    split: str
    label: Label
    indices: range | np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Arrays:
        example = self.stored(index)
        return {"image": decode(example["image"], 3), "label": self.label.encode(example[self.label.feature])}

    def label_of(self, index: int) -> np.ndarray:
        """The class or the classes of an example as they are stored; its image is not decoded."""
        return np.asarray(self.stored(index)[self.label.feature])

    def stored(self, index: int) -> dict[str, Any]:
        """An example as TFDS has it, its image as a file."""
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        with _OPENING:
            source = _opened(self.directory, self.split)
        return source[int(self.indices[index])]

    def part(self, start: int, stop: int) -> "OnDisk":
        """The same files, a part of the indices."""
        return dataclasses.replace(self, indices=self.indices[start:stop])

    def reordered(self, order: np.ndarray) -> "OnDisk":
        """The same files, indices in another order."""
        return dataclasses.replace(self, indices=np.asarray(self.indices)[order])

    @property
    def blank(self) -> Arrays:
        """Zeros like the label of an example, and an image without a pixel: each has its size."""
        return {"image": blank((0, 0, 3), np.uint8), "label": self.label.blank}


@functools.cache
def _opened(directory: str, split: str) -> Any:
    """The source of a split, opened at its first example in each process."""
    import tensorflow_datasets as tfds

    return open_split(tfds.builder_from_directory(directory), split)


# Labelled images by index, which can be sent to other processes. An example is `image` [H, W, C] in uint8 and `label`:
# a class in int32, or where images have several classes, a multi-hot vector [num_classes] in uint8.
Examples = InMemory | OnDisk


def open_split(builder: Any, split: str) -> Any:
    """Examples by index of what a builder of TFDS has prepared, their images as they are stored."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.data_sources.base import BaseDataSource

    decoders, formats = {"image": tfds.decode.SkipDecoding()}, builder.info.available_file_formats()
    if tfds.core.FileFormat.ARRAY_RECORD in formats:
        return builder.as_data_source(split, decoders=decoders)
    if tfds.core.FileFormat.TFRECORD not in formats:
        names = ", ".join(form.value for form in formats)
        raise UsageError(f"{builder.data_dir} must be in the format array_record or tfrecord, and is in {names}")
    source = BaseDataSource(builder.info, split, decoders)
    info = builder.info.splits[split]
    source.data_source = TFRecords(info.filepaths, info.shard_lengths)
    return source


class TFRecords:
    """The records of TFRecord files by index, without TensorFlow; TFDS has no random access to them.

    A file is mapped into memory, and looked through for where records begin, when the first of them is asked for.
    Checksums are left alone.
    """

    def __init__(self, paths: Iterable[Path], lengths: Iterable[int]):
        """The files, and the number of records in each."""
        self._paths, self._ends = list(paths), np.cumsum([0, *lengths])
        self._files: dict[int, tuple[mmap.mmap | bytes, np.ndarray]] = {}

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> bytes:
        number = int(np.searchsorted(self._ends, index, side="right")) - 1
        if number not in self._files:
            self._files[number] = self._open(self._paths[number], int(self._ends[number + 1] - self._ends[number]))
        data, places = self._files[number]
        start, length = places[index - self._ends[number]]
        return data[start : start + length]

    def _open(self, path: Path, number: int) -> tuple[mmap.mmap | bytes, np.ndarray]:
        """A file, and of each of its records the start and the length."""
        with open(path, "rb") as file:  # one without a record cannot be mapped
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(file.fileno()).st_size else b""
        position, places = 0, []
        while position + _HEADER.size <= len(data):
            length = _HEADER.unpack_from(data, position)[0]
            places.append((position + _HEADER.size, length))
            position += _HEADER.size + length + _FOOTER
        if position != len(data):
            raise DamagedError(path, "it does not end where a record does", _AGAIN)
        if len(places) != number:
            raise DamagedError(path, f"it has {len(places)} examples in the place of {number}", _AGAIN)
        return data, np.asarray(places, np.int64)
