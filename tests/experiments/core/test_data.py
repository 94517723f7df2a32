"""Data sets: scikit-learn's digits, and one in TFDS's own format that the test writes."""

import os
from pathlib import Path

import numpy as np
import pytest

from experiments.core import data, sources
from experiments.core.errors import UsageError
from tests.experiments import tiny_tfds
from tests.experiments.support import ROOT, small_config


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """`mnist` with 30 and 10 random images, and the arrays that it was written from."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    examples = {
        split: (rng.integers(0, 256, (n, 28, 28), np.uint8), rng.integers(0, 10, n))
        for split, n in {"train": 30, "test": 10}.items()
    }
    tiny_tfds.write(tmp_path, "mnist", examples)
    return tmp_path, examples


def test_digits_split_into_all_of_them():
    digits = sources.digits()
    assert digits.train.arrays["image"].shape == (1438, 8, 8, 1)
    assert digits.test.arrays["image"].shape == (359, 8, 8, 1)
    assert digits.train.arrays["image"].dtype == np.uint8
    assert set(digits.test.arrays["label"].tolist()) == set(range(10))


def test_tfds_format_reads_back(tiny):
    directory, examples = tiny
    for _ in range(2):  # decoded, then from the cache
        source = sources.from_tfds("mnist", str(directory), download=False)
        np.testing.assert_array_equal(source.train.arrays["image"][..., 0], examples["train"][0])
        np.testing.assert_array_equal(source.train.arrays["label"], examples["train"][1])
        np.testing.assert_array_equal(source.test.arrays["image"][..., 0], examples["test"][0])
    assert source.num_classes == 10


def test_directory_from_the_environment(tiny, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tiny[0]))
    assert len(sources.from_tfds("mnist", None, download=False).train) == 30


def test_a_data_set_unknown_to_tfds_is_read_from_its_files(tiny):
    directory, examples = tiny
    tiny_tfds.write(directory, "scribbles", examples)
    assert len(sources.from_tfds("scribbles", str(directory), download=False).test) == 10


@pytest.mark.parametrize("name", ["kmnist", "no_such_data_set"])
def test_a_missing_data_set_is_one_line_that_says_what_to_do(tmp_path, name):
    with pytest.raises(UsageError) as error:
        sources.from_tfds(name, str(tmp_path), download=False)
    message = str(error.value)
    assert "\n" not in message
    assert name in message
    assert "--config.data_dir" in message
    assert "tfds build" in message


def test_test_split_trains_on_all_training_images():
    config = small_config()
    loaded = data.load(config)
    assert (loaded.num_train, len(loaded.evaluation["label"]), loaded.prefix) == (1438, 359, "test")


def test_validation_split_holds_out_the_last_training_images():
    digits = sources.digits()
    loaded = data.load(small_config(split="validation", validation_size=400))
    np.testing.assert_array_equal(loaded.train["image"], digits.train.arrays["image"][:-400])
    np.testing.assert_array_equal(loaded.evaluation["image"], digits.train.arrays["image"][-400:])
    assert loaded.prefix == "valid"


def test_too_large_a_validation_split_names_the_field():
    with pytest.raises(UsageError, match=r"config\.validation_size=10000 .* below the 1438"):
        data.load(small_config(split="validation"))


def test_pixel_mean_and_std():
    loaded = data.load(small_config())
    pixels = loaded.train["image"].astype(np.float64)
    np.testing.assert_allclose(loaded.pixel_mean_and_std(), (pixels.mean(), pixels.std()), rtol=1e-12)


def test_real_mnist():
    directory = Path(os.environ.get("TFDS_DATA_DIR", ROOT.parent / "shared" / "tfds"))
    if not (directory / "mnist").is_dir():
        pytest.skip(f"no mnist in {directory}: set TFDS_DATA_DIR to where it is")
    source = sources.from_tfds("mnist", str(directory), download=False)
    assert source.train.arrays["image"].shape == (60_000, 28, 28, 1)
    np.testing.assert_array_equal(
        np.bincount(source.test.arrays["label"]), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    )
