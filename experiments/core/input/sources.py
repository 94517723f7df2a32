"""Where images come from: TensorFlow Datasets without TensorFlow, or scikit-learn's digits."""

import contextlib
import dataclasses
import functools
import math
import os
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from experiments.core.config import require_one_of
from experiments.core.errors import UsageError
from experiments.core.input import cache
from experiments.core.input.examples import Arrays, Examples, InMemory, Label, OnDisk
from experiments.core.pace import pace

_SHARED = Path(__file__).resolve().parents[4] / "shared" / "tfds"  # beside the repository
_PATIENCE = 3.0  # seconds between two lines of progress
_LARGEST = 4 * 2**30  # bytes of decoded images and multi-hot labels above which they are left on disk
_TEST = {"imagenet2012": "validation"}  # the split that tests, where it is not `test`
# Of data sets with the split `full` alone: how many of the first images test, those that big_vision holds out.
_HELD_OUT = {"imagenet21k": 51_200}


@dataclasses.dataclass(frozen=True)
class Source:
    """Both splits of a data set."""

    train: Examples
    test: Examples
    num_classes: int


@functools.cache
def _table_of_digits() -> np.ndarray:
    """A row for each digit, 64 pixels and its class; read once by the runs of a suite."""
    # The file that `sklearn.datasets.load_digits` reads: to import scikit-learn takes longer than a short run trains.
    path = metadata.distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    return np.loadtxt(str(path), delimiter=",")


def digits(label: str = "label") -> Source:
    """The 1,797 digits of 8 x 8 pixels that come with scikit-learn; a fixed fifth of them tests.

    Args:
      label: "label", the ten digits, or "coarse_label", which takes two neighbours for one: 0 and 1, 2 and 3, ...
    """
    require_one_of("label", label, ("label", "coarse_label"))
    merged = 2 if label == "coarse_label" else 1
    table = _table_of_digits()
    images, classes = table[:, :-1].reshape(-1, 8, 8, 1), table[:, -1].astype(np.int32)
    order = np.random.RandomState(0).permutation(len(classes))
    examples: Arrays = {
        # Stored as 0 to 16: to the range of other images.
        "image": np.round(images[order] * (255 / 16)).astype(np.uint8),
        "label": (classes[order] // merged).astype(np.int32),
    }
    num_test = len(order) // 5
    whole = InMemory(examples)
    return Source(train=whole.part(num_test, len(whole)), test=whole.part(0, num_test), num_classes=10 // merged)


def from_tfds(name: str, data_dir: str | None, *, download: bool, label: str = "label") -> Source:
    """Reads a TFDS image classification data set with splits `train` and `test` (of others, see above).

    It is read through TFDS's random-access data source, which needs no TensorFlow; only a first
    download does, since TFDS prepares data sets with it. Images of one size are decoded into memory,
    and the decoded arrays are cached; where images differ in size, as ImageNet's do, or take more
    than 4 GiB, they are left on disk, to be decoded as they are asked for.

    Args:
      name: as TFDS knows it.
      data_dir: where it is; see `_data_dir` for the default.
      download: whether to prepare a data set that is not there.
      label: the feature to classify by, say cifar100's `coarse_label`; a class, or a sequence of classes.

    Raises:
      UsageError: if the data set cannot be obtained, is not one of labelled images, or has no such label.
    """
    directory = _data_dir(name, data_dir)
    test, held_out = _TEST.get(name, "test"), _HELD_OUT.get(name)
    needed = ("full",) if held_out else ("train", test)
    with _quiet():
        builder = _builder(name, directory, download)
        features = builder.info.features
        labels = _labels(features)
        if not labels or "image" not in features or not set(needed) <= set(builder.info.splits):
            raise UsageError(
                f"config.dataset={name!r} is not allowed: it must have the feature image, another that is a ClassLabel "
                f"or a sequence of them, and what is needed of splits: {' and '.join(needed)}"
            )
        require_one_of("label", label, labels)
        if held_out:
            num_examples = builder.info.splits["full"].num_examples
            whole = OnDisk(str(builder.data_dir), "full", labels[label], 0, num_examples)
            return Source(whole.part(held_out, num_examples), whole.part(0, held_out), labels[label].num_classes)
        splits = {"train": builder.info.splits["train"], "test": builder.info.splits[test]}
        train, evaluation = (
            _in_memory(name, builder, splits, labels, label)
            if _fits_in_memory(features["image"].shape, labels, splits)
            else (
                OnDisk(str(builder.data_dir), split.name, labels[label], 0, split.num_examples)
                for split in splits.values()
            )
        )
    return Source(train, evaluation, labels[label].num_classes)


def _labels(features: Mapping[str, Any]) -> dict[str, Label]:
    """The features to classify by."""
    import tensorflow_datasets as tfds

    labels = {}
    for name, kind in features.items():
        several = isinstance(kind, tfds.features.Sequence)
        classes = kind.feature if several else kind
        if isinstance(classes, tfds.features.ClassLabel):
            labels[name] = Label(name, classes.num_classes, several)
    return labels


def _fits_in_memory(shape: tuple[int | None, ...], labels: dict[str, Label], splits: dict[str, Any]) -> bool:
    image = math.prod(side or 0 for side in shape)  # 0 where a side varies
    size = image + sum(label.num_classes for label in labels.values() if label.several)
    return image > 0 and size * sum(split.num_examples for split in splits.values()) <= _LARGEST


def _in_memory(
    name: str, builder: Any, splits: dict[str, Any], labels: dict[str, Label], label: str
) -> Iterator[InMemory]:
    """Both splits, from the cache if they are there; one cache serves all labels."""
    files = [Path(path) for split in splits.values() for path in split.filepaths]
    arrays = cache.load_or_make(
        name, f"{name} {builder.info.version}", files, lambda: _decode(name, builder, splits, labels)
    )
    for split in splits:
        yield InMemory({"image": arrays[f"{split}_image"], "label": arrays[f"{split}_{label}"]})


def _data_dir(name: str, data_dir: str | None) -> str | None:
    """The config's directory, else $TFDS_DATA_DIR, else one beside the repository, else TFDS's."""
    if data_dir or (data_dir := os.environ.get("TFDS_DATA_DIR")):
        return data_dir
    return str(_SHARED) if (_SHARED / name).is_dir() else None


def _builder(name: str, data_dir: str | None, download: bool) -> Any:
    """A TFDS builder whose data are on disk, in a format with random access."""
    import tensorflow_datasets as tfds

    where = data_dir or str(Path.home() / "tensorflow_datasets")
    found, without = "set --config.data_dir or TFDS_DATA_DIR to where it is", "or use --config.dataset=digits"
    build = f"prepare it with `tfds build {name} --file_format=array_record --data_dir={where}`"
    advice = f"{found}, or {build}, {without}, which needs no download"
    try:
        builder = tfds.builder(name, data_dir=data_dir, file_format="array_record")
        if builder.is_prepared():
            return builder
        if not download:
            raise UsageError(f"data set {name!r} is not in {where}: {advice}")
        with cache.one_process(f"download-{name}"):
            builder = tfds.builder(name, data_dir=data_dir, file_format="array_record")
            if not builder.is_prepared():  # nor has another process done it in the meantime
                print(f"downloading {name} to {where}", flush=True)
                with _leaving_no_empty_folders(Path(where), name):
                    builder.download_and_prepare()
        return builder
    except tfds.core.DatasetNotFoundError as error:
        raise UsageError(
            f"TFDS knows no data set {name!r}, and {where} has none: {found}, prepared by a builder of your own, "
            f"{without}"
        ) from error
    except UsageError:
        raise
    # Whatever goes wrong in a download (network, disk, TensorFlow not installed, checksums), the
    # user's next step is the same.
    except Exception as error:
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise UsageError(
            f"data set {name!r} could not be obtained from {where} ({type(error).__name__}: {reason}): {advice}"
        ) from error


@contextlib.contextmanager
def _leaving_no_empty_folders(data_dir: Path, name: str) -> Iterator[None]:
    """Removes the folders that TFDS has made for a data set and that are empty, where it could not be prepared."""
    above = [path for path in (data_dir, *data_dir.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        downloads = data_dir / "downloads"
        for place in (downloads / name, downloads / "extracted", data_dir / name.partition("/")[0]):
            for path in (*sorted(place.rglob("*"), reverse=True), place):
                _remove_if_empty(path)
        for path in (downloads, *above):
            _remove_if_empty(path)
        raise


def _remove_if_empty(path: Path) -> None:
    with contextlib.suppress(OSError):  # it is a file, or there is something in it
        path.rmdir()


def _decode(name: str, builder: Any, splits: dict[str, Any], labels: dict[str, Label]) -> Arrays:
    arrays: Arrays = {}
    done, total, start = 0, sum(info.num_examples for info in splits.values()), time.monotonic()
    last = start
    print(f"decoding {total} images of {name}, once", flush=True)
    for split, info in splits.items():
        source = builder.as_data_source(split=info.name)
        image = np.empty((len(source), *source[0]["image"].shape), np.uint8)
        targets = {name: np.empty((len(source), *label.shape), label.dtype) for name, label in labels.items()}
        for i in range(len(source)):
            example = source[i]
            image[i] = example["image"]
            for feature, label in labels.items():
                targets[feature][i] = label.encode(example[feature])
            done, now = done + 1, time.monotonic()
            if now - last >= _PATIENCE or done == total:
                print(f"decoding {name}: {done} of {total} images, {pace(done, total, now - start)}", flush=True)
                last = now
        arrays |= {f"{split}_image": image} | {f"{split}_{feature}": target for feature, target in targets.items()}
    return arrays


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps TFDS's advice (an optional decoder, older data folders) off stderr."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
