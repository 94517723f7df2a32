"""Sources of images: TensorFlow Datasets without TensorFlow, or scikit-learn's digits."""

import dataclasses
import hashlib
import importlib.util
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
from experiments.core.input.examples import Examples, InMemory, Label, OnDisk, decode, open_split
from experiments.core.input.stream import Arrays

_SHARED = Path(__file__).resolve().parents[4] / "shared" / "tfds"  # beside the repository
ON_DISK = "a folder, as records are read from a disk: mount a bucket by gcsfuse (scripts/launch/README.md)"
_PATIENCE = 3.0  # seconds between two lines of progress
_LARGEST = 4 * 2**30  # bytes of decoded images and multi-hot labels above which they are left on disk
_TEST = {"imagenet2012": "validation"}  # the split that tests, where it is not `test`
# How many of the first images test in data sets with the split `full` alone: those that big_vision holds out.
_HELD_OUT = {"imagenet21k": 51_200}
_SAMPLE = 64  # records to look at of a split that is left on disk
_DIGITS = 16  # of the digest in a fingerprint


@dataclasses.dataclass(frozen=True)
class Source:
    """Both splits of a data set.

    The `fingerprint` is its name, its version and a digest of its records: of all, or of those on disk of a sample. It
    is the same in whatever files they are stored.
    """

    train: Examples
    test: Examples
    num_classes: int
    fingerprint: str = ""


def digits(label: str = "label") -> Source:
    """The 1,797 digits of 8 x 8 pixels that come with scikit-learn; a fixed fifth of them tests.

    The label "coarse_label" takes two neighbours for one: 0 and 1, 2 and 3, ...
    """
    require_one_of("label", label, ("label", "coarse_label"))
    merged = 2 if label == "coarse_label" else 1
    # The file that `sklearn.datasets.load_digits` reads: to import scikit-learn takes longer than a short run trains.
    path = metadata.distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    fingerprint = f"digits {hashlib.sha256(Path(str(path)).read_bytes()).hexdigest()[:_DIGITS]}"
    table = np.loadtxt(str(path), delimiter=",")
    table = table[np.random.RandomState(0).permutation(len(table))]
    images, classes = table[:, :-1].reshape(-1, 8, 8, 1), table[:, -1].astype(np.int32)
    # Stored as 0 to 16: to the range of other images.
    examples = InMemory({"image": np.round(images * (255 / 16)).astype(np.uint8), "label": classes // merged})
    num_test = len(examples) // 5
    return Source(examples.part(num_test, len(examples)), examples.part(0, num_test), 10 // merged, fingerprint)


def from_tfds(name: str, data_dir: str | None, *, download: bool, label: str = "label") -> Source:
    """Reads a TFDS image classification data set with splits `train` and `test` (of others, see above).

    It is read without TensorFlow, in the format array_record or tfrecord; only a first download needs TensorFlow, since
    TFDS prepares data sets with it. Images of one size are decoded into memory, and the arrays are cached. Those that
    differ in size, as ImageNet's do, or take more than 4 GiB, are decoded as they are asked for. Training images that
    are stored in the order of their classes are taken in a fixed random order.

    The feature `label`, say cifar100's `coarse_label`, is a class, or a sequence of classes; of plain integers, the
    largest says how many classes there are. Raises `UsageError` if the data set cannot be obtained (`download` prepares
    what is not in `data_dir`), is not one of labelled images in uint8, or has no such label.
    """
    import tensorflow_datasets as tfds

    builder = _builder(name, _data_dir(name, data_dir), download)
    features, splits = dict(builder.info.features), builder.info.splits
    held_out = _HELD_OUT.get(name)
    needed = ("full",) if held_out else ("train", _TEST.get(name, "test"))
    lacks = f"a data set with the splits {' and '.join(needed)}; it has {', '.join(splits)}"
    require(set(needed) <= set(splits), "dataset", name, lacks)
    if missing := [path for split in needed for path in splits[split].filepaths if not path.exists()]:
        raise DamagedError(missing[0], "it is missing", "prepare or copy the data set again")
    image: Any = features.get("image")
    # Other types would wrap, or be cut off to 0 and 1.
    usable = isinstance(image, tfds.features.Image) and image.np_dtype == np.uint8
    needs = "a data set with a feature image in uint8, from 0 (black) to 255, of shape [H, W, C]"
    require(usable, "dataset", name, f"{needs} (docs/how_to/data.md makes one); it is {image}")
    labels = {feature: candidate for feature, kind in features.items() if (candidate := _label(feature, kind))}
    classes = f"a ClassLabel, a sequence of them, or an integer: one of {', '.join(labels) or 'none'}"
    require(label in labels, "label", label, f"a feature that is {classes}")
    chosen = labels[label]
    pixels = math.prod(side or 0 for side in image.shape)  # 0 where a side varies
    size = (pixels + chosen.blank.nbytes) * sum(splits[split].num_examples for split in needed)
    if pixels and size <= _LARGEST and not held_out:
        return _in_memory(name, builder, [splits[split] for split in needed], chosen)
    require(chosen.num_classes > 0, "label", label, "a ClassLabel where images differ in size or are too large")
    parts = [OnDisk(str(builder.data_dir), split, chosen, range(splits[split].num_examples)) for split in needed]
    if held_out:
        parts = [parts[0].part(held_out, len(parts[0])), parts[0].part(0, held_out)]
    fingerprint = _fingerprint(builder, _sampled(builder, needed, parts))
    train = _shuffled(name, parts[0], _SAMPLE)
    return Source(train, parts[1], chosen.num_classes, fingerprint)


def can_be_downloaded(name: str) -> bool:
    """Returns whether `download` obtains a data set by itself; of ImageNet, users bring the archives."""
    import tensorflow_datasets as tfds

    try:
        return name == "digits" or tfds.builder_cls(name).MANUAL_DOWNLOAD_INSTRUCTIONS is None
    except tfds.core.registered.DatasetNotFoundError:
        return False


def _label(name: str, kind: Any) -> Label | None:
    """The label that a feature is; None if it is nothing to classify by."""
    import tensorflow_datasets as tfds

    several = isinstance(kind, tfds.features.Sequence)
    classes = kind.feature if several else kind
    if isinstance(classes, tfds.features.ClassLabel):
        return Label(name, classes.num_classes or 0, several)
    is_integer = isinstance(kind, tfds.features.Tensor) and kind.shape == () and kind.np_dtype.kind in "iu"
    return Label(name, 0) if is_integer else None


def _in_memory(name: str, builder: Any, splits: Sequence[Any], label: Label) -> Source:
    """The splits that train and test, from the cache if they are there."""
    files = [Path(path) for split in splits for path in split.filepaths]
    version = f"{name} {builder.info.version} {label.feature}"
    arrays = cache.load_or_make(name, version, files, lambda: _decode(name, builder, splits, label))
    classes = [arrays[f"{split.name}_label"] for split in splits]
    if not label.num_classes:
        largest = int(max(values.max() for values in classes))
        fewer = f"classes 0, 1, ..., fewer than there are images, and the largest is {largest}"
        require(largest < len(classes[0]), "label", label.feature, fewer)
        print(f"config.label={label.feature!r}: the integers from 0 to {largest} are taken for classes", flush=True)
        label = dataclasses.replace(label, num_classes=1 + largest)
    train, test = (
        InMemory({"image": arrays[f"{split.name}_image"], "label": values if label.several else label.checked(values)})
        for split, values in zip(splits, classes, strict=True)
    )
    fingerprint = _fingerprint(builder, str(arrays["digest"]))
    return Source(_shuffled(name, train, 1000), test, label.num_classes, fingerprint)


def _shuffled(name: str, examples: Examples, looks: int) -> Examples:
    """The examples; in a fixed random order, of which it tells, if they are stored in the order of their classes.

    Else the last of them, held out for validation, would be of classes that are not trained. In that order neighbours
    have one label far more often than by chance.
    """
    places = _spread(len(examples) - 1, looks)
    labels, following = ([examples.label_of(index + step) for index in places] for step in (0, 1))
    rng = np.random.default_rng(0)
    by_chance = [following[index] for index in rng.permutation(len(following))]
    same, expected = (sum(map(np.array_equal, labels, others)) for others in (following, by_chance))
    if 2 * same <= len(labels) + expected:
        return examples
    print(f"{name} is stored in the order of its classes: its training images are taken in a random one", flush=True)
    return examples.reordered(rng.permutation(len(examples)))


def _spread(number: int, most: int) -> list[int]:
    """At most so many indices of a `number` of things, spread over all of them."""
    return sorted({int(index) for index in np.linspace(0, number - 1, most)}) if number > 0 else []


def _fingerprint(builder: Any, digest: str) -> str:
    return f"{builder.info.full_name} {digest[:_DIGITS]}"


def _sampled(builder: Any, splits: Sequence[str], parts: Sequence[OnDisk]) -> str:
    """A digest of some records, as all would take an hour to read, and of the numbers and bytes of all."""
    infos = [builder.info.splits[split] for split in splits]
    digest = hashlib.sha256(str([(info.num_examples, int(info.num_bytes)) for info in infos]).encode())
    for part in parts:
        for index in _spread(len(part), _SAMPLE):
            _add(digest, part.stored(index), part.label)
    return digest.hexdigest()


def _add(digest: Any, example: Mapping[str, Any], label: Label) -> None:
    """Adds to a digest the image, as the file that it is stored as, and the label of an example."""
    digest.update(example["image"])
    digest.update(np.asarray(example[label.feature], np.int64).tobytes())


def _decode(name: str, builder: Any, splits: Sequence[Any], label: Label) -> Arrays:
    arrays: Arrays = {}
    shape = builder.info.features["image"].shape
    done, total, digest = 0, sum(split.num_examples for split in splits), hashlib.sha256()
    start = last = time.monotonic()
    print(f"decoding {total} images of {name}, once", flush=True)
    for split in splits:
        source = open_split(builder, split.name)
        image = arrays[f"{split.name}_image"] = np.empty((len(source), *shape), np.uint8)
        # Plain integers may not be classes at all: that is seen once all are known.
        kind = np.uint8 if label.several else np.int64
        target = arrays[f"{split.name}_label"] = np.empty((len(source), *label.blank.shape), kind)
        for i in range(len(source)):
            example = source[i]
            _add(digest, example, label)
            pixels = decode(example["image"], shape[-1])
            if pixels.shape != shape:
                raise UsageError(f"image {i} of {name}'s split {split.name} is {pixels.shape}: it must be {shape}")
            image[i] = pixels
            target[i] = label.encode(example[label.feature]) if label.several else example[label.feature]
            done, now = done + 1, time.monotonic()
            if now - last >= _PATIENCE:
                print(f"decoding {name}: {done} of {total} images, {pace(done, total, now - start)}", flush=True)
                last = now
    return arrays | {"digest": np.array(digest.hexdigest())}


def _data_dir(name: str, data_dir: str | None) -> str | None:
    """The config's directory, else $TFDS_DATA_DIR, else one beside the repository, else TFDS's."""
    if data_dir or (data_dir := os.environ.get("TFDS_DATA_DIR")):
        if "://" in data_dir:
            raise UsageError(f"TFDS_DATA_DIR={data_dir} is not allowed: it must be {ON_DISK}")
        return os.path.expanduser(data_dir)
    return str(_SHARED) if (_SHARED / name).is_dir() else None


def _builder(name: str, data_dir: str | None, download: bool) -> Any:
    """A TFDS builder whose data are on disk."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import downloader

    where = data_dir or str(Path.home() / "tensorflow_datasets")
    advice = (
        "set --config.data_dir or TFDS_DATA_DIR to where it is, or prepare it as docs/how_to/data.md does, or use "
        "--config.dataset=digits, which needs no download"
    )
    try:
        builder = tfds.builder(name, data_dir=data_dir)  # in the format that it has
        if download and not builder.is_prepared():
            with cache.one_process(f"download-{name}"):
                builder = tfds.builder(name, data_dir=data_dir, file_format="array_record")
                if not builder.is_prepared():  # nor has another process done it in the meantime
                    if importlib.util.find_spec("tensorflow") is None:
                        raise ImportError("TFDS prepares it with TensorFlow: make install-data")
                    print(f"downloading {name} to {where}", flush=True)
                    downloader.MAX_RETRIES = 4  # in six seconds: with TFDS's ten it takes minutes to see no network
                    builder.download_and_prepare()
    # Whatever goes wrong (no such set, network, disk, TensorFlow not installed), the user's next step is the same.
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UsageError(f"data set {name!r} could not be obtained from {where} ({reason}): {advice}") from error
    if not builder.is_prepared():
        raise UsageError(f"data set {name!r} is not in {where}: {advice}")
    return builder
