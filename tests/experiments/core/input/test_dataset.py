"""Data sets: scikit-learn's digits, and some in TFDS's own format that the tests write."""

import importlib.util
import os
import pickle
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_digits

from experiments.core.errors import UsageError
from experiments.core.input import dataset as data
from experiments.core.input import sources
from experiments.core.input.examples import InMemory, Label, OnDisk, _opened
from experiments.core.input.stream import epoch_indices
from experiments.core.training import train
from experiments.mnist_pruning.experiment import RECIPE
from tests.experiments import tiny_tfds
from tests.experiments.support import ROOT, small_config

RNG = np.random.default_rng(0)
EXAMPLES = {
    split: (RNG.integers(0, 256, (n, 28, 28), np.uint8), RNG.integers(0, 10, n))
    for split, n in {"train": 30, "test": 10}.items()
}
PHOTOS = [RNG.integers(0, 256, (7 + i, 9, 3), np.uint8) for i in range(5)]
PHOTOS[2] = PHOTOS[2][..., 0]  # grey


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Data sets under MNIST's name, of three labels, without a test split, and of images that differ in size."""
    path = tmp_path_factory.mktemp("tfds")
    tiny_tfds.write(path, "mnist", EXAMPLES)
    tiny_tfds.write(path, "scribbles", EXAMPLES, coarse=True, several=True)
    tiny_tfds.write(path, "untested", {"train": EXAMPLES["train"]})
    photos = {"train": (PHOTOS, np.arange(5)), "test": (PHOTOS[:2], np.arange(2))}
    tiny_tfds.write(path, "photos", photos, varied=True)
    tiny_tfds.write(path, "imagenet21k", {"full": EXAMPLES["train"]}, several=True, varied=True)
    return path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def read(directory, name, **options):
    return sources.from_tfds(name, str(directory), download=False, **options)


def test_digits_split_into_all_of_them():
    digits = sources.digits()
    assert digits.train.arrays["image"].shape == (1438, 8, 8, 1)
    assert digits.train.arrays["image"].dtype == np.uint8
    bunch = load_digits()
    rows = np.random.RandomState(0).permutation(1797)
    both = {name: np.concatenate([digits.test.arrays[name], digits.train.arrays[name]]) for name in ("image", "label")}
    np.testing.assert_array_equal(both["image"][..., 0], np.round(bunch.images[rows] * 255 / 16))
    np.testing.assert_array_equal(both["label"], bunch.target[rows])
    coarse = sources.digits("coarse_label")
    assert coarse.num_classes == 5
    np.testing.assert_array_equal(coarse.test.arrays["label"], digits.test.arrays["label"] // 2)


LABELS = {
    "label": lambda labels: labels,
    "coarse_label": lambda labels: labels // 2,
    "labels": lambda labels: np.arange(10) < labels[:, None],  # a multi-hot vector
}


@pytest.mark.parametrize("label", LABELS)
def test_stored_images_and_labels_are_read(directory, monkeypatch, label):
    assert min(EXAMPLES["train"][1]) == 0  # an image without any of several labels is among them
    for largest in (2**32, 2**32, 40 * 28 * 28 - 1):  # decoded, from the cache, left on disk
        monkeypatch.setattr(sources, "_LARGEST", largest)
        source = read(directory, "scribbles", label=label)
        assert isinstance(source.train, InMemory if largest == 2**32 else OnDisk)
        assert source.num_classes == (5 if label == "coarse_label" else 10)
        for split, (images, labels) in EXAMPLES.items():
            examples = list(getattr(source, split))
            np.testing.assert_array_equal(np.stack([example["image"][..., 0] for example in examples]), images)
            found = np.stack([example["label"] for example in examples])
            assert found.dtype == (np.uint8 if label == "labels" else np.int32)
            np.testing.assert_array_equal(found, LABELS[label](labels))


def test_imagenet21k_tests_on_first_images(directory, monkeypatch):
    monkeypatch.setitem(sources._HELD_OUT, "imagenet21k", 12)
    source = read(directory, "imagenet21k", label="labels")
    assert (len(source.train), len(source.test), source.num_classes) == (18, 12, 10)
    np.testing.assert_array_equal(source.test[0]["image"][..., 0], EXAMPLES["train"][0][0])
    np.testing.assert_array_equal(source.train[0]["image"][..., 0], EXAMPLES["train"][0][12])


def stored_again(path, **changes):
    """Writes the same set once more, of the images and labels that differ; returns the folder."""
    examples = {split: tuple(map(np.copy, pair)) for split, pair in EXAMPLES.items()}
    for split, (index, label) in changes.items():
        examples[split][1][index] = label
    tiny_tfds.write(path, "scribbles", examples, coarse=True, several=True)
    return path


@pytest.mark.parametrize("largest", [2**32, 0])
def test_fingerprint_is_of_records_alone(directory, tmp_path, monkeypatch, largest):
    monkeypatch.setattr(sources, "_LARGEST", largest)
    first = read(directory, "scribbles").fingerprint
    assert first.startswith(f"scribbles/{tiny_tfds.VERSION} ")
    assert read(stored_again(tmp_path / "same"), "scribbles").fingerprint == first
    other = (EXAMPLES["train"][1][7] + 1) % 10
    assert read(stored_again(tmp_path / "other", train=(7, other)), "scribbles").fingerprint != first


@pytest.mark.parametrize("largest", [2**32, 0])
def test_class_ordered_set_is_shuffled(tmp_path, monkeypatch, largest):
    monkeypatch.setattr(sources, "_LARGEST", largest)
    images, labels = RNG.integers(0, 256, (120, 4, 4), np.uint8), np.repeat(np.arange(6), 20)
    images[:, 0, 0] = labels
    tiny_tfds.write(tmp_path, "ordered", {"train": (images, labels), "test": (images[:9], labels[:9])})
    first, again = (list(read(tmp_path, "ordered").train) for _ in range(2))
    found = [int(example["label"]) for example in first]
    assert found == [int(example["label"]) for example in again]
    assert set(found[-30:]) == set(found[:-30]) == set(range(6))
    assert all(example["image"][0, 0, 0] == example["label"] for example in first)


def test_finished_download_is_not_repeated(monkeypatch):
    import tensorflow_datasets as tfds

    # Before and after the lock was waited for; neither can download.
    builders = [SimpleNamespace(is_prepared=lambda: False), SimpleNamespace(is_prepared=lambda: True)]
    monkeypatch.setattr(tfds, "builder", lambda *_, **__: builders.pop(0))
    assert sources._builder("kmnist", None, download=True).is_prepared()
    assert builders == []


def test_download_needs_tensorflow(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "tensorflow" else find(name, *rest)
    )
    with pytest.raises(UsageError, match=r"'kmnist' .*make install-data"):
        sources.from_tfds("kmnist", str(tmp_path), download=True)


def test_download_without_network_ends_soon(tmp_path, monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror("no network")

    pytest.importorskip("tensorboard", reason="pip install --group data")
    slept = []
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(time, "sleep", slept.append)
    with pytest.raises(UsageError, match="kmnist"):
        sources.from_tfds("kmnist", str(tmp_path), download=True)
    assert 0 < sum(slept) < 60


def test_a_bucket_is_no_folder_of_data(monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", "gs://bucket/tfds")
    with pytest.raises(UsageError, match=r"^TFDS_DATA_DIR=gs://bucket/tfds .* gcsfuse"):
        sources.from_tfds("mnist", None, download=False)


def test_several_labels_pass_the_pipeline(directory):
    config = small_config(dataset="scribbles", data_dir=str(directory))
    config.label, config.feed, config.eval_batch_size, config.batch_size = "labels", "stream", 8, 15
    config.input = {"recipe": "none", "size": 28, "augment_on": "host", "workers": 0, "prefetch": 1}
    loaded = data.load(config)
    assert loaded.num_classes == 10
    train = loaded.train_stream.open(0, np.arange(15))
    wanted = LABELS["labels"](EXAMPLES["train"][1][epoch_indices(0, 0, 30, 15)[1]])
    np.testing.assert_array_equal(train.batch(1)["label"], wanted)
    evaluation = loaded.evaluation_stream.open(0, np.arange(8))
    last = np.minimum(np.arange(8, 16), 9)  # the last of the ten images fills up the last batch
    np.testing.assert_array_equal(evaluation.batch(1)["label"], LABELS["labels"](EXAMPLES["test"][1][last]))
    train.close()
    evaluation.close()


def test_unknown_classes_are_left_out():
    label = Label("labels", 4, several=True)
    np.testing.assert_array_equal(label.encode([-1, 2]), [0, 0, 1, 0])
    np.testing.assert_array_equal(label.encode([]), [0, 0, 0, 0])
    with pytest.raises(IndexError):
        label.encode([4])


def test_missing_splits_and_labels_are_named(directory, tmp_path):
    with pytest.raises(UsageError, match=r"^config\.dataset='untested' .* splits train and test; it has train$"):
        read(directory, "untested")
    with pytest.raises(UsageError, match=r"^config\.label='colour' .* one of .*coarse_label"):
        read(directory, "scribbles", label="colour")
    config = small_config()
    config.label = "colour"
    with pytest.raises(UsageError, match=r"^config\.label='colour' .* one of label, coarse_label$"):
        data.load(config)
    config = small_config(dataset="scribbles", data_dir=str(directory), batch_size=10)
    config.label = "labels"
    with pytest.raises(UsageError, match=r"^config\.label='labels' .* one class an image"):
        train.run(RECIPE, config, tmp_path / "run")


def test_varied_image_sizes_stay_on_disk(directory):
    config = small_config(dataset="photos", split="validation", validation_size=2)
    config.data_dir = str(directory)
    with pytest.raises(UsageError, match=r"images of photos .* config\.input\.augment_on must be 'host'"):
        data.load(config)
    config.eval_batch_size, config.batch_size = 2, 3
    config.input = {"recipe": "none", "size": 8, "augment_on": "host", "workers": 0, "prefetch": 1}
    loaded = data.load(config)
    assert (loaded.train, loaded.num_train, loaded.evaluation_stream.num_examples) == ({}, 3, 2)
    batch = loaded.train_stream.open(0, np.arange(3)).batch(0)
    assert batch["image"].shape == (3, 8, 8, 3)
    assert sorted(batch["label"]) == [0, 1, 2]
    assert loaded.evaluation_stream.open(0, np.arange(2)).batch(0)["label"].tolist() == [3, 4]


def test_examples_on_disk_decode_to_rgb(directory):
    part = read(directory, "photos").train.part(1, 4)
    for examples in (part, pickle.loads(pickle.dumps(part))):
        np.testing.assert_array_equal(examples[0]["image"], PHOTOS[1])
        np.testing.assert_array_equal(examples[1]["image"], np.repeat(PHOTOS[2][..., None], 3, axis=2))
        assert examples[1]["label"] == 2
    with pytest.raises(IndexError, match="example 3 of 3"):
        part[3]


def test_threads_open_the_files_once(directory, monkeypatch):
    import tensorflow_datasets as tfds

    examples = read(directory, "photos").train
    examples = [pickle.loads(pickle.dumps(part)) for part in (examples, examples.part(0, 3))]
    open_, opening = tfds.builder_from_directory, []
    _opened.cache_clear()

    def alone(path):
        opening.append(path)
        at = len(opening)
        time.sleep(0.1)  # for others to come
        assert len(opening) == at, "another thread has begun meanwhile"
        return open_(path)

    monkeypatch.setattr(tfds, "builder_from_directory", alone)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: examples[number % 2][1]["image"], range(4)))
    assert len(opening) == 1
    assert all(np.array_equal(image, PHOTOS[1]) for image in found)


def test_a_missing_data_set_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"^data set 'nonesuch' could not be obtained .*DatasetNotFoundError"):
        read(tmp_path, "nonesuch")
    with pytest.raises(UsageError, match=rf"'kmnist' is not in {tmp_path}: set --config\.data_dir .*data\.md"):
        read(tmp_path, "kmnist")


def test_validation_is_the_last_of_training():
    digits = sources.digits()
    loaded = data.load(small_config())
    assert (loaded.num_train, len(loaded.evaluation["label"]), loaded.prefix) == (1438, 359, "test")
    loaded = data.load(small_config(split="validation", validation_size=400))
    np.testing.assert_array_equal(loaded.train["image"], digits.train.arrays["image"][:-400])
    np.testing.assert_array_equal(loaded.evaluation["image"], digits.train.arrays["image"][-400:])
    assert loaded.prefix == "valid"
    with pytest.raises(UsageError, match=r"config\.validation_size=10000 .* below the 1438"):
        data.load(small_config(split="validation"))


def test_pixel_mean_and_std():
    loaded = data.load(small_config())
    pixels = loaded.train["image"].astype(np.float64)
    np.testing.assert_allclose(loaded.pixel_mean_and_std(), (pixels.mean(), pixels.std()), rtol=1e-12)
    loaded.train["image"] = np.full_like(loaded.train["image"], 7)
    with pytest.raises(UsageError, match=r"pixels of the training images must differ, and all are 7$"):
        loaded.pixel_mean_and_std()


def test_real_mnist(monkeypatch):
    directory = Path(os.environ.get("TFDS_DATA_DIR", ROOT.parent / "shared" / "tfds"))
    if not (directory / "mnist").is_dir():
        pytest.skip(f"no mnist in {directory}: set TFDS_DATA_DIR to where it is")
    monkeypatch.setattr(sources, "_LARGEST", 0)  # left on disk: to decode all images takes long
    source = sources.from_tfds("mnist", str(directory), download=False)
    assert len(source.train) == 60_000
    assert source.train[59_999]["image"].shape[:2] == (28, 28)
    labels = [int(source.test[index]["label"]) for index in range(200)]
    assert np.bincount(labels).tolist() == [22, 16, 22, 17, 19, 15, 20, 20, 24, 25]


def test_the_first_of_each_class():
    labels = np.array([2, 0, 1, 0, 2, 1, 0, 2], np.int32)
    arrays = {"image": np.arange(8), "label": labels}
    whole = data.Data(arrays, arrays, num_classes=3, prefix="valid")
    few = data.first_of_each_class(whole, 2)
    np.testing.assert_array_equal(few.train["image"], [0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(few.train["label"], labels[:6])
    assert few.evaluation is arrays
    with pytest.raises(UsageError, match=r"config\.images_per_class=3 .* at most 2, as many as every class has"):
        data.first_of_each_class(whole, 3)
