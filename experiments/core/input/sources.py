"""Sources of images: TensorFlow Datasets without TensorFlow, or scikit-learn's digits."""

import dataclasses
import functools
import math
import os
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.config import require, require_one_of
from experiments.core.console import pace
from experiments.core.errors import DamagedError, UsageError, first_line
from experiments.core.input import cache
from experiments.core.input.examples import Arrays, Examples, InMemory, Label, OnDisk, decode, open_split

_SHARED = Path(__file__).resolve().parents[4] / "shared" / "tfds"  # beside the repository
_PATIENCE = 3.0  # seconds between two lines of progress
_LARGEST = 4 * 2**30  # bytes of decoded images and multi-hot labels above which they are left on disk
_FORMATS = ("array_record", "tfrecord")  # of TFDS, which `open_split` opens
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

    It is read without TensorFlow, in whichever format it lies there, by TFDS's random-access data source or of TFRecord
    files; only a first download needs TensorFlow, since TFDS prepares data sets with it. Images of one size are decoded
    into memory, and the decoded arrays are cached; where images differ in size, as ImageNet's do, or take more than
    4 GiB, they are left on disk, to be decoded as they are asked for.

    Args:
      name: as TFDS knows it.
      data_dir: where it is; see `_data_dir` for the default.
      download: whether to prepare a data set that is not there.
      label: the feature to classify by, say cifar100's `coarse_label`; a class, or a sequence of classes. Of plain
        integers, the largest says how many classes there are.

    Raises:
      UsageError: if the data set cannot be obtained, is not one of labelled images in uint8, or has no such label.
    """
    directory = _data_dir(name, data_dir)
    test, held_out = _TEST.get(name, "test"), _HELD_OUT.get(name)
    needed = ("full",) if held_out else ("train", test)
    builder = _builder(name, directory, download)
    _require_images(name, builder, needed)
    features, splits, labels = builder.info.features, builder.info.splits, _labels(builder.info.features)
    is_now = f"; it is {features[label]}" if label in features else ""
    classes = f"a ClassLabel, a sequence of them, or an integer: one of {', '.join(labels) or 'none'}"
    require(label in labels, "label", label, f"a feature that is {classes}{is_now}")
    chosen, shape = labels[label], features["image"].shape
    if not held_out and _fits_in_memory(shape, labels, [splits[split] for split in needed]):
        return _in_memory(name, builder, {"train": splits["train"], "test": splits[test]}, labels, label)
    # Files are then decoded to RGB, whatever they are; arrays have the channels that they have.
    on_disk = "where images differ in size or are too large for memory"
    stored = f"a data set of tfds.features.Image {on_disk}; it has {features['image']}"
    require(features["image"].get_serialized_info().shape == (), "dataset", name, stored)
    require(chosen.num_classes > 0, "label", label, f"a ClassLabel {on_disk}{is_now}")
    parts = [OnDisk(str(builder.data_dir), split, chosen, 0, splits[split].num_examples) for split in needed]
    if held_out:
        parts = [parts[0].part(held_out, len(parts[0])), parts[0].part(0, held_out)]
    train, evaluation = parts
    return Source(train, evaluation, chosen.num_classes)


def _require_images(name: str, builder: Any, needed: Sequence[str]) -> None:
    """Checks that there are the splits `needed`, in a format that is read here, of images as `Data` has them."""
    import tensorflow_datasets as tfds

    formats = {form.value for form in builder.info.available_file_formats()}
    require(
        not formats.isdisjoint(_FORMATS),
        "dataset",
        name,
        f"a data set in the format {' or '.join(_FORMATS)}; it is in {', '.join(formats)}",
    )
    splits = builder.info.splits
    lacks = f"a data set with the splits {' and '.join(needed)}; it has {', '.join(splits)}"
    require(set(needed) <= set(splits), "dataset", name, lacks)
    if missing := [path for split in needed for path in splits[split].filepaths if not path.exists()]:
        raise DamagedError(missing[0], "it is missing", "prepare or copy the data set again")
    image: Any = dict(builder.info.features).get("image")
    usable = isinstance(image, tfds.features.Image | tfds.features.Tensor)
    usable = usable and image.np_dtype == np.uint8 and len(image.shape) == 3
    # Others would wrap, or be cut off to 0 and 1.
    needs = "a data set with a feature image in uint8, from 0 (black) to 255, of shape [H, W, C]"
    require(usable, "dataset", name, f"{needs} (docs/how_to/data.md makes one); it is {image}")


def _labels(features: Mapping[str, Any]) -> dict[str, Label]:
    """The features to classify by."""
    import tensorflow_datasets as tfds

    labels = {}
    for name, kind in features.items():
        several = isinstance(kind, tfds.features.Sequence)
        classes = kind.feature if several else kind
        if isinstance(classes, tfds.features.ClassLabel):
            labels[name] = Label(name, classes.num_classes or 0, several)
        elif isinstance(kind, tfds.features.Tensor) and kind.shape == () and kind.np_dtype.kind in "iu":
            labels[name] = Label(name, 0)
    return labels


def _fits_in_memory(shape: tuple[int | None, ...], labels: dict[str, Label], splits: Sequence[Any]) -> bool:
    image = math.prod(side or 0 for side in shape)  # 0 where a side varies
    size = image + sum(label.num_classes for label in labels.values() if label.several)
    return image > 0 and size * sum(split.num_examples for split in splits) <= _LARGEST


def _in_memory(name: str, builder: Any, splits: dict[str, Any], labels: dict[str, Label], label: str) -> Source:
    """Both splits, from the cache if they are there; one cache serves all labels."""
    files = [Path(path) for split in splits.values() for path in split.filepaths]
    arrays = cache.load_or_make(
        name, f"{name} {builder.info.version}", files, lambda: _decode(name, builder, splits, labels)
    )
    chosen, classes = labels[label], {split: arrays[f"{split}_{label}"] for split in splits}
    if not chosen.num_classes:
        largest = int(max(values.max() for values in classes.values()))
        fewer = f"classes 0, 1, ..., fewer than there are images, and the largest is {largest}"
        require(largest < len(classes["train"]), "label", label, fewer)
        print(f"config.label={label!r}: the integers from 0 to {largest} are taken for classes", flush=True)
        chosen = dataclasses.replace(chosen, num_classes=1 + largest)
    train, test = (
        InMemory(
            {
                "image": arrays[f"{split}_image"],
                "label": classes[split] if chosen.several else chosen.checked(classes[split]),
            }
        )
        for split in splits
    )
    return Source(train, test, chosen.num_classes)


def _data_dir(name: str, data_dir: str | None) -> str | None:
    """The config's directory, else $TFDS_DATA_DIR, else one beside the repository, else TFDS's."""
    if data_dir or (data_dir := os.environ.get("TFDS_DATA_DIR")):
        return os.path.expanduser(data_dir)
    return str(_SHARED) if (_SHARED / name).is_dir() else None


def _builder(name: str, data_dir: str | None, download: bool) -> Any:
    """A TFDS builder whose data are on disk, in a format that is read here."""
    import tensorflow_datasets as tfds

    where = data_dir or str(Path.home() / "tensorflow_datasets")
    # Not TFDS's command `tfds build`, which cannot start without Apache Beam.
    options = f"{name!r}, data_dir={where!r}, file_format='array_record'"
    prepare = f"import tensorflow_datasets as tfds; tfds.builder({options}).download_and_prepare()"
    advice = (
        f'set --config.data_dir or TFDS_DATA_DIR to where it is, or prepare it by `python -c "{prepare}"`, or of your '
        "own files as docs/how_to/data.md does, or use --config.dataset=digits, which needs no download"
    )
    try:
        builder = tfds.builder(name, data_dir=data_dir)  # in the format that it has
        if builder.is_prepared():
            return builder
        if not download:
            raise UsageError(f"data set {name!r} is not in {where}: {advice}")
        with cache.one_process(f"download-{name}"):
            builder = tfds.builder(name, data_dir=data_dir, file_format="array_record")
            if not builder.is_prepared():  # nor has another process done it in the meantime
                print(f"downloading {name} to {where}", flush=True)
                builder.download_and_prepare()
        return builder
    except UsageError:
        raise
    # Whatever goes wrong (no such set, network, disk, TensorFlow not installed), the user's next step is the same.
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UsageError(f"data set {name!r} could not be obtained from {where} ({reason}): {advice}") from error


def _decode(name: str, builder: Any, splits: dict[str, Any], labels: dict[str, Label]) -> Arrays:
    arrays: Arrays = {}
    shape = builder.info.features["image"].shape
    done, total = 0, sum(info.num_examples for info in splits.values())
    start = last = time.monotonic()
    print(f"decoding {total} images of {name}, once", flush=True)
    for split, info in splits.items():
        source = open_split(builder, info.name)
        image = np.empty((len(source), *shape), np.uint8)
        # Plain integers may not be classes at all, so that nothing is made of them before one is chosen.
        targets = {
            name: np.empty((len(source), *label.shape), label.dtype if label.several else np.int64)
            for name, label in labels.items()
        }
        for i in range(len(source)):
            example = source[i]
            pixels = decode(example["image"], shape[-1])
            if pixels.shape != shape:
                raise UsageError(f"image {i} of {name}'s split {info.name} is {pixels.shape}, and they must be {shape}")
            image[i] = pixels
            for feature, label in labels.items():
                targets[feature][i] = label.encode(example[feature]) if label.several else example[feature]
            done, now = done + 1, time.monotonic()
            if now - last >= _PATIENCE:
                print(f"decoding {name}: {done} of {total} images, {pace(done, total, now - start)}", flush=True)
                last = now
        arrays |= {f"{split}_image": image} | {f"{split}_{feature}": target for feature, target in targets.items()}
    return arrays
