"""Data sets in outline are what they are when read, but for what is in them."""

import json
import os
from pathlib import Path

import ml_collections
import numpy as np
import pytest

from configs import vmoe
from experiments.core.errors import UsageError
from experiments.core.input import dataset, sources
from experiments.core.input.outline import OUTLINES, outline


def config_of(name, **fields):
    common = {"dataset": name, "split": "test", "validation_size": 100, "data_dir": None, "download": False}
    return ml_collections.ConfigDict(common | fields)


def described(data):
    arrays = {"train": data.train, "evaluation": data.evaluation}
    shapes = {part: {k: (v.shape, v.dtype) for k, v in examples.items()} for part, examples in arrays.items()}
    return shapes, data.num_classes, data.prefix, data.num_train


@pytest.mark.parametrize("fields", [{}, {"split": "validation"}, {"label": "coarse_label"}])
def test_digits(fields):
    config = config_of("digits", **fields)
    assert described(outline(config)) == described(dataset.load(config))


@pytest.mark.parametrize("name", ["mnist", "cifar100"])
def test_what_is_at_hand(name):
    """As TFDS describes it: to decode its images would take longer than all else here."""
    directory = Path(os.environ.get("TFDS_DATA_DIR", str(sources._SHARED))) / name
    if not directory.is_dir():
        pytest.skip(f"no {name} in {directory.parent}: set TFDS_DATA_DIR to where it is")
    (described_in,) = directory.glob("*/dataset_info.json")
    splits = json.loads(described_in.read_text())["splits"]
    features = json.loads((described_in.parent / "features.json").read_text())["featuresDict"]["features"]
    known = OUTLINES[name]
    numbers = {split["name"]: sum(map(int, split["shardLengths"])) for split in splits}
    assert numbers == {"train": known.train, "test": known.test}
    assert tuple(map(int, features["image"]["image"]["shape"]["dimensions"])) == known.shape
    classes = {
        label: int(feature["classLabel"]["numClasses"])
        for label, feature in features.items()
        if "classLabel" in feature
    }
    assert classes == {name: label.num_classes for name, label in known.labels.items()}


def test_no_image_is_made():
    data = outline(config_of("cifar100"))
    for array in (*data.train.values(), *data.evaluation.values()):
        assert array.base.size <= 32  # of 150 million entries
    _, deviation = outline(config_of("digits")).pixel_mean_and_std()
    assert deviation > 0


@pytest.mark.parametrize(
    ("data", "train", "shape", "dtype", "classes"),
    [
        ("imagenet2012", 1_281_167, (), np.int32, 1000),
        ("imagenet21k", 14_145_922, (21_843,), np.uint8, 21_843),
    ],
)
def test_varied_image_sizes_are_streamed(data, train, shape, dtype, classes):
    found = outline(vmoe.get_config(f"data={data}"))
    assert (found.train, found.num_train, found.num_classes) == ({}, train, classes)
    row = found.train_stream.example
    assert (row["image"].shape, row["image"].dtype) == ((224, 224, 3), np.uint8)
    assert (row["label"].shape, row["label"].dtype) == (shape, dtype)


def test_unknown_dataset_or_label_is_named():
    with pytest.raises(UsageError, match=r"config\.dataset='jft' is not allowed: it must be one of digits, mnist"):
        outline(config_of("jft"))
    with pytest.raises(UsageError, match=r"config\.label='fine' is not allowed: it must be one of label, coarse_label"):
        outline(config_of("cifar100", label="fine"))
