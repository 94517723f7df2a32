"""Data sets of one's own: every recipe of docs/how_to/data.md is run; what else TFDS can store is read, or refused.

TensorFlow, which stores them, starts once, in a process of its own.
"""

import csv
import gzip
import importlib.util
import pickle
import re
import shutil
import struct
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from experiments.core.errors import DamagedError, UsageError
from experiments.core.input import dataset, sources
from experiments.core.input.examples import InMemory, OnDisk, open_split
from tests.experiments.support import ROOT, small_config

PAGE = (ROOT / "docs" / "how_to" / "data.md").read_text()
NUMBERS = {"train": 24, "test": 10}
SHAPES = {  # of the images that each recipe of the page is given
    "from_npz": (9, 7),
    "from_idx": (6, 5),
    "from_csv": (4, 4),
    "from_cifar": (32, 32, 3),
    "from_folder": (32, 32, 3),
}
NUM_CLASSES = 3

# Appended to the page: what else TFDS can store, of images [N, 6, 5, 1] in uint8 with labels [N].
ODD = """
F = tfds.features

def store_as(name, image=None, label=None, convert=lambda images: images, relabel=lambda labels: labels, **options):
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version="1.0.0",
        data_dir="odd",
        features=F.FeaturesDict(
            {"image": image or F.Image(shape=(6, 5, 1)), "label": label or F.ClassLabel(num_classes=3)}
        ),
        split_datasets={
            split: [
                (i, {"image": image, "label": label})
                for i, (image, label) in enumerate(zip(convert(images[..., None]), relabel(labels), strict=True))
            ]
            for split, (images, labels) in odd.items()
        },
        disable_shuffling=True,
        **{"file_format": "array_record"} | options,
    )

def as_file(mode):
    def convert(images):
        for image in images[..., 0]:
            file = io.BytesIO()
            Image.fromarray(image).convert(mode).save(file, "png")
            yield file.getvalue()
    return convert

def with_palette(images):
    for image in images[..., 0]:
        file, picture = io.BytesIO(), Image.fromarray(255 - image)
        picture.putpalette([255 - index for index in range(256) for _ in range(3)])
        picture.save(file, "png")
        yield file.getvalue()

import io

odd = {
    "train": (read_idx("train-images-idx3-ubyte.gz"), read_idx("train-labels-idx1-ubyte.gz").astype(np.int64)),
    "test": (read_idx("t10k-images-idx3-ubyte.gz"), read_idx("t10k-labels-idx1-ubyte.gz").astype(np.int64)),
}
store_as("tfrecord", file_format="tfrecord")
store_as("integers", label=F.Scalar(np.int64))
store_as("photos", F.Image(shape=(None, None, 3)), file_format="tfrecord", convert=as_file("RGB"))
store_as("palettes", F.Image(shape=(6, 5, 3)), convert=with_palette)
store_as("colour_for_grey", convert=as_file("RGB"))
store_as("alpha", F.Image(shape=(6, 5, 4)), convert=as_file("RGBA"))
store_as("deep_files", convert=as_file("I;16"))
store_as("other_sizes", F.Image(shape=(1, 5, 1)), convert=as_file("L"))
store_as("floats", F.Tensor(shape=(6, 5, 1), dtype=np.float32), convert=lambda x: (x / 255).astype(np.float32))
store_as("float_labels", label=F.Scalar(np.float32), relabel=lambda y: y + np.float32(0.5))
store_as("unlabelled", relabel=lambda y: np.where(y == 2, -1, y))
store_as("identifiers", label=np.int64, relabel=lambda y: y + 1000)
"""


def write_npz(folder, arrays):
    files = {f"{axis}_{split}": array for split, pair in arrays.items() for axis, array in zip("xy", pair, strict=True)}
    np.savez(folder / "mnist.npz", **files)


def write_idx(folder, arrays):
    for split, name in {"train": "train", "test": "t10k"}.items():
        for array, kind in zip(arrays[split], ("images-idx3", "labels-idx1"), strict=True):
            head = struct.pack(f">BBBB{array.ndim}i", 0, 0, 8, array.ndim, *array.shape)
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes()))


def write_csv(folder, arrays):
    for split, (images, labels) in arrays.items():
        with (folder / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["label", *(f"pixel{i}" for i in range(images[0].size))])
            writer.writerows([label, *image.ravel()] for image, label in zip(images, labels, strict=True))


def write_cifar(folder, arrays):
    (folder / "cifar-10-batches-py").mkdir()
    parts = {f"data_batch_{i + 1}": [array[i::5] for array in arrays["train"]] for i in range(5)}
    for name, (images, labels) in {**parts, "test_batch": arrays["test"]}.items():
        batch = {b"data": images.transpose(0, 3, 1, 2).reshape(len(images), -1), b"labels": labels.tolist()}
        (folder / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(batch))


def write_folder(folder, arrays):
    for split, (images, labels) in arrays.items():
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            path = folder / "photos" / split / f"class {label}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)


WRITE = {"npz": write_npz, "idx": write_idx, "csv": write_csv, "cifar": write_cifar, "folder": write_folder}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder with `data`, what the page has stored, and `odd`, and the arrays that each recipe was given."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed: pip install --group data")
    folder, rng, given = tmp_path_factory.mktemp("own"), np.random.default_rng(0), {}
    for name, shape in SHAPES.items():
        given[name] = {
            split: (rng.integers(0, 256, (n, *shape), np.uint8), np.arange(n, dtype=np.uint8) % NUM_CLASSES)
            for split, n in NUMBERS.items()
        }
        WRITE[name.removeprefix("from_")](folder, given[name])
    program = "\n".join([*re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL), ODD])
    process = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    return folder, given


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def load(stored, name, **options):
    return sources.from_tfds(name, str(stored[0] / "odd"), download=False, **options)


def assert_is(source, images, labels, kind=InMemory):
    """The examples of `source` are these, in their order."""
    assert isinstance(source, kind)
    np.testing.assert_array_equal(np.stack([example["image"] for example in source]), images)
    read = [example["label"] for example in source]
    assert {(label.shape, label.dtype) for label in map(np.asarray, read)} == {((), np.dtype(np.int32))}
    np.testing.assert_array_equal(read, labels)


def as_rows(images, labels):
    """Compares what the order of the examples does not change."""
    return sorted((image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True))


@pytest.mark.parametrize("name", SHAPES)
def test_documented_recipes_store_the_data(stored, name):
    folder, given = stored
    source = sources.from_tfds(name, str(folder / "data"), download=False)
    assert source.num_classes == NUM_CLASSES
    for split in NUMBERS:
        arrays = getattr(source, split).arrays
        assert arrays["image"].shape == (NUMBERS[split], *(*SHAPES[name], 1)[:3])
        assert as_rows(arrays["image"], arrays["label"]) == as_rows(*given[name][split])
    if name == "from_folder":
        data = dataset.load(small_config("dense", dataset=name, data_dir=str(folder / "data")))
        assert (data.num_train, data.num_classes, data.prefix) == (NUMBERS["train"], NUM_CLASSES, "test")


def test_tfrecord_is_read_without_tensorflow(stored, monkeypatch):
    images, labels = zip(*(stored[1]["from_idx"][split] for split in NUMBERS), strict=True)
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # whoever imports it fails
    for largest, kind, channels in ((2**32, InMemory, 1), (0, OnDisk, 3)):
        monkeypatch.setattr(sources, "_LARGEST", largest)
        source = load(stored, "tfrecord")
        assert source.num_classes == NUM_CLASSES
        for part, pixels, classes in zip((source.train, source.test), images, labels, strict=True):
            assert_is(part, np.repeat(pixels[..., None], channels, axis=-1), classes, kind)
            assert len(part) == len(classes)


def test_fingerprint_ignores_file_format(stored):
    digests = [load(stored, name).fingerprint.split()[1] for name in ("tfrecord", "integers")]
    assert digests[0] == digests[1]


def test_a_damaged_part_is_one_line(stored, tmp_path):
    """In a copy."""
    copy = shutil.copytree(stored[0] / "odd" / "tfrecord", tmp_path / "tfrecord") / "1.0.0"
    path = copy / "tfrecord-train.tfrecord-00000-of-00001"
    whole = path.read_bytes()
    for content, how in (
        (whole[:-7], "does not end where a record does"),
        (whole + b"123", "does not end where a record does"),
        (b"", "has 0 examples in the place of 24"),
        (None, "is missing"),
    ):
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(DamagedError, match=how):
            sources.from_tfds("tfrecord", str(tmp_path), download=False)


def test_format_without_index_is_refused():
    info = SimpleNamespace(available_file_formats=lambda: {tfds.core.FileFormat.RIEGELI})
    with pytest.raises(UsageError, match=r"must be in the format array_record or tfrecord, and is in riegeli$"):
        open_split(SimpleNamespace(data_dir="data/1.0", info=info), "train")


def test_integer_labels_become_classes(stored, capsys):
    images, labels = stored[1]["from_idx"]["train"]
    source = load(stored, "integers")
    assert source.num_classes == NUM_CLASSES
    assert_is(source.train, images[..., None], labels)
    assert "config.label='label': the integers from 0 to 2 are taken for classes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "channels"),
    [("palettes", 3), ("colour_for_grey", 1)],
)
def test_png_mode_does_not_change_pixels(stored, name, channels):
    images, labels = stored[1]["from_idx"]["test"]
    assert_is(load(stored, name).test, np.repeat(images[..., None], channels, axis=-1), labels)


def test_alpha_is_read_as_a_fourth_channel(stored):
    images, labels = stored[1]["from_idx"]["test"]
    rgb = np.repeat(images[..., None], 3, axis=-1)
    alpha = np.full((*images.shape, 1), 255, np.uint8)
    assert_is(load(stored, "alpha").test, np.concatenate([rgb, alpha], axis=-1), labels)
    assert_is(load(stored, "photos").test, rgb, labels, OnDisk)


@pytest.mark.parametrize(
    ("name", "names"),
    {
        "floats": (r"config\.dataset='floats' ", r"uint8.*\[H, W, C\]", r"Tensor\(.*float32"),
        "deep_files": ("'I;16'", "8 bits"),
        "other_sizes": ("image 0", r"\(6, 5, 1\)", r"\(1, 5, 1\)"),
        "float_labels": (r"config\.label='label' ", "ClassLabel", "integer"),
        "unlabelled": (r"config\.label='label' ", "from 0 to 2", "in 8 of 24", "-1"),
        "identifiers": (r"config\.label='label' ", "fewer than there are images", "1002"),
    }.items(),
)
def test_unsupported_data_are_refused(stored, name, names):
    with pytest.raises(UsageError) as error:
        load(stored, name)
    for part in names:
        assert re.search(part, str(error.value)), (part, str(error.value))


def test_unknown_class_is_refused_when_read(stored, monkeypatch):
    monkeypatch.setattr(sources, "_LARGEST", 0)
    train = load(stored, "unlabelled").train
    assert train[1]["label"] == 1
    with pytest.raises(UsageError, match=r"config\.label='label' .* from 0 to 2 .* -1$"):
        train[2]
