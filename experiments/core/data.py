"""The examples of an experiment, as it trains and evaluates on them."""

import dataclasses

import ml_collections
import numpy as np

from experiments.core import sources
from experiments.core.config import require, require_one_of
from experiments.core.stream import Arrays, Stream

SPLITS = {"test": "test", "validation": "valid"}  # the prefix of the metrics of each


@dataclasses.dataclass(frozen=True)
class Data:
    """Images [N, H, W, C] in uint8 and labels [N] in int32, to train and to evaluate on.

    Where there is a stream, it takes the place of the arrays, which may then be empty.
    """

    train: Arrays
    evaluation: Arrays
    num_classes: int
    prefix: str  # of the metrics on `evaluation`: "test" or "valid"
    train_stream: Stream | None = None
    evaluation_stream: Stream | None = None

    @property
    def num_train(self) -> int:
        """The number of training images."""
        return self.train_stream.num_examples if self.train_stream else len(self.train["label"])

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


def load(config: ml_collections.ConfigDict) -> Data:
    """Reads `config.dataset`.

    With `split="test"` all training images train and the test images evaluate. With
    `split="validation"` the last `validation_size` training images evaluate, the others train, and
    the test images are left alone: that is the split to choose hyper-parameters on.
    """
    if config.dataset == "digits":
        source = sources.digits()
    else:
        source = sources.from_tfds(config.dataset, config.data_dir, download=config.download)
    train, evaluation = source.train, source.test
    if config.split == "validation":
        num_train = len(train["label"]) - config.validation_size
        require(
            num_train > 0,
            "validation_size",
            config.validation_size,
            f"below the {len(train['label'])} training images of {config.dataset}",
        )
        evaluation = {name: array[num_train:] for name, array in train.items()}
        train = {name: array[:num_train] for name, array in train.items()}
    return Data(train, evaluation, source.num_classes, SPLITS[config.split])
