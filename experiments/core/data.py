"""The examples of an experiment, as it trains and evaluates on them."""

import dataclasses

import ml_collections
import numpy as np

from experiments.core import pipeline, sources
from experiments.core.config import require, require_one_of
from experiments.core.errors import UsageError
from experiments.core.examples import Arrays, Examples, InMemory
from experiments.core.stream import Stream

SPLITS = {"test": "test", "validation": "valid"}  # the prefix of the metrics of each


@dataclasses.dataclass(frozen=True)
class Data:
    """Labelled images to train and to evaluate on, in memory or on disk (`examples.py`).

    Where there is a stream, that is how the examples reach the trainer; else as arrays.
    """

    train_examples: Examples
    evaluation_examples: Examples
    num_classes: int
    prefix: str  # of the metrics on the evaluation examples: "test" or "valid"
    train_stream: Stream | None = None
    evaluation_stream: Stream | None = None

    @property
    def train(self) -> Arrays:
        """Arrays of all training examples, which must be in memory: `image` in uint8, `label` in int32."""
        return _arrays(self.train_examples)

    @property
    def evaluation(self) -> Arrays:
        """Arrays of all examples to evaluate on, which must be in memory."""
        return _arrays(self.evaluation_examples)

    @property
    def num_train(self) -> int:
        """The number of training images."""
        return len(self.train_examples)

    def pixel_mean_and_std(self) -> tuple[float, float]:
        """Over all pixels of the training images."""
        # In blocks and in float64: the images as floats would need eight times their memory.
        blocks = np.array_split(self.train["image"], max(1, self.num_train // 4096))
        count = self.train["image"].size
        mean = sum(block.sum(dtype=np.float64) for block in blocks) / count
        variance = sum(np.square(block - mean).sum() for block in blocks) / count
        return float(mean), float(np.sqrt(variance))


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields read here, before the data are."""
    require_one_of("split", config.split, SPLITS)
    require(config.validation_size > 0, "validation_size", config.validation_size, "positive")
    if "input" in config:
        pipeline.validate(config)


def load(config: ml_collections.ConfigDict) -> Data:
    """Reads `config.dataset`, classified by its feature `config.label` ("label" if left out).

    With `split="test"` all training images train and the test images evaluate. With
    `split="validation"` the last `validation_size` training images evaluate, the others train, and
    the test images are left alone: that is the split to choose hyper-parameters on.
    """
    label = config.get("label", "label")
    if config.dataset == "digits":
        require_one_of("label", label, ["label"])
        source = sources.digits()
    else:
        source = sources.from_tfds(config.dataset, config.data_dir, download=config.download, label=label)
    train, evaluation = source.train, source.test
    if config.split == "validation":
        num_train = len(train) - config.validation_size
        require(
            num_train > 0,
            "validation_size",
            config.validation_size,
            f"below the {len(train)} training images of {config.dataset}",
        )
        evaluation = train.part(num_train, len(train))
        train = train.part(0, num_train)
    data = Data(train, evaluation, source.num_classes, SPLITS[config.split])
    return _streamed(config, data) if "input" in config and config.input.augment_on == "host" else data


def _streamed(config: ml_collections.ConfigDict, data: Data) -> Data:
    """`data` by way of workers on the host, which augment them."""
    train = Stream(
        len(data.train_examples), lambda seed, rows: pipeline.train_batches(config, data.train_examples, seed, rows)
    )
    evaluation = Stream(
        len(data.evaluation_examples),
        lambda seed, rows: pipeline.evaluation_batches(config, data.evaluation_examples, config.eval_batch_size, rows),
    )
    return dataclasses.replace(data, train_stream=train, evaluation_stream=evaluation)


def _arrays(examples: Examples) -> Arrays:
    if not isinstance(examples, InMemory):
        raise UsageError(
            "the images of config.dataset are read from disk one by one, for they are too large for memory or differ "
            "in size: config.feed must be 'stream', with config.input.augment_on='host'"
        )
    return examples.arrays
