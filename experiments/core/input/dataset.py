"""The examples of an experiment, as it trains and evaluates on them."""

import dataclasses

import ml_collections
import numpy as np

from experiments.core.config import require, require_one_of
from experiments.core.errors import UsageError
from experiments.core.input import pipeline, sources
from experiments.core.input.examples import InMemory
from experiments.core.input.stream import Arrays, Stream

SPLITS = {"test": "test", "validation": "valid"}  # the prefix of the metrics of each


@dataclasses.dataclass(frozen=True)
class Data:
    """Images [N, H, W, C] in uint8, or features [N, ...] of them in floats, and labels, to train and to evaluate on.

    Labels are classes [N] in int32, or where images have several each, multi-hot vectors [N, num_classes] in uint8.
    A stream takes the place of the arrays, which may then be empty.
    """

    train: Arrays
    evaluation: Arrays
    num_classes: int
    prefix: str  # of the metrics on `evaluation`: "test" or "valid"
    train_stream: Stream | None = None
    evaluation_stream: Stream | None = None
    fingerprint: str = ""  # of the data set (`sources.py`); empty where none is read

    @property
    def num_train(self) -> int:
        """The number of training images."""
        return self.train_stream.num_examples if self.train_stream else len(self.train["label"])

    @property
    def is_multi_hot(self) -> bool:
        """Returns whether images may have several classes each."""
        return self.train_stream.example["label"].ndim == 1 if self.train_stream else self.train["label"].ndim == 2

    def pixel_mean_and_std(self) -> tuple[float, float]:
        """Mean and standard deviation of all pixels of the training images; `UsageError` if they are all alike."""
        # In blocks and in float64: the images as floats would need eight times their memory.
        blocks = np.array_split(self.train["image"], max(1, self.num_train // 4096))
        count = self.train["image"].size
        mean = sum(block.sum(dtype=np.float64) for block in blocks) / count
        variance = sum(np.square(block - mean).sum() for block in blocks) / count
        if variance == 0:
            raise UsageError(f"the pixels of the training images must differ, and all are {mean:g}")
        return float(mean), float(np.sqrt(variance))


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields read here, before the data are."""
    require_one_of("split", config.split, SPLITS)
    require(config.validation_size > 0, "validation_size", config.validation_size, "positive")
    where = config.get("data_dir")
    require("://" not in (where or ""), "data_dir", where, sources.ON_DISK)
    if config.get("input") is not None:
        pipeline.validate(config)


def load(config: ml_collections.ConfigDict) -> Data:
    """Reads `config.dataset`, classified by its feature `config.label` ("label" if left out).

    With `split="test"` all training images train and the test images evaluate. With `split="validation"`, on which to
    choose hyper-parameters, the last `validation_size` training images evaluate and the others train.

    With `config.input.augment_on="host"` both are streams (`pipeline.py`), decoded and augmented on the way, as images
    that are not in memory must be.
    """
    label = config.get("label", "label")
    where, download = config.get("data_dir"), config.get("download", False)  # digits lie nowhere
    return divided(config, source(config.dataset, where, download=download, label=label))


def source(name: str, data_dir: str | None = None, *, download: bool = False, label: str = "label") -> sources.Source:
    """Both splits of a data set: scikit-learn's `digits`, or one of TFDS (`sources.py`)."""
    if name == "digits":
        return sources.digits(label)
    return sources.from_tfds(name, data_dir, download=download, label=label)


def divided(config: ml_collections.ConfigDict, source: sources.Source) -> Data:
    """Divides a source into what trains and what evaluates, as `load` says."""
    train, evaluation = source.train, source.test
    if config.split == "validation":
        num_train = len(train) - config.validation_size
        fewer = f"below the {len(train)} training images of {config.dataset}"
        require(num_train > 0, "validation_size", config.validation_size, fewer)
        train, evaluation = train.part(0, num_train), train.part(num_train, len(train))
    arrays = [part.arrays if isinstance(part, InMemory) else {} for part in (train, evaluation)]
    data = Data(arrays[0], arrays[1], source.num_classes, SPLITS[config.split], fingerprint=source.fingerprint)
    if config.get("input") is not None and config.input.augment_on == "host":
        streams = [pipeline.stream(config, part, train=part is train) for part in (train, evaluation)]
        return dataclasses.replace(data, train_stream=streams[0], evaluation_stream=streams[1])
    if not data.train:
        raise UsageError(
            f"the images of {config.dataset} are read from disk one by one, for they are too large for memory or "
            "differ in size: config.input.augment_on must be 'host'"
        )
    return data


def first_of_each_class(data: Data, count: int) -> Data:
    """The same with fewer to train on: the first `count` of every class; `UsageError` if a class has fewer."""
    labels = data.train["label"]
    places = [np.flatnonzero(labels == label)[:count] for label in range(data.num_classes)]
    fewest = min(map(len, places))
    require(fewest == count, "images_per_class", count, f"at most {fewest}, as many as every class has")
    kept = np.sort(np.concatenate(places))
    return dataclasses.replace(data, train={name: array[kept] for name, array in data.train.items()})
