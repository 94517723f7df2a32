"""Where images come from: TensorFlow Datasets without TensorFlow, or scikit-learn's digits."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from experiments.core import cache
from experiments.core.errors import UsageError

_SHARED = Path(__file__).resolve().parents[3] / "shared" / "tfds"  # beside the repository
_BLOCK = 10_000  # images between two lines of progress


@dataclasses.dataclass(frozen=True)
class Source:
    """Both splits of a data set: `image` [N, H, W, C] in uint8 and `label` [N] in int32."""

    train: dict[str, np.ndarray]
    test: dict[str, np.ndarray]
    num_classes: int


def digits() -> Source:
    """The 1,797 digits of 8 x 8 pixels that come with scikit-learn; a fixed fifth of them tests."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.RandomState(0).permutation(len(bunch.target))
    examples = {
        "image": bunch.images[order, :, :, None].astype(np.uint8),
        "label": bunch.target[order].astype(np.int32),
    }
    num_test = len(order) // 5
    return Source(
        train={name: array[num_test:] for name, array in examples.items()},
        test={name: array[:num_test] for name, array in examples.items()},
        num_classes=10,
    )


def from_tfds(name: str, data_dir: str | None, *, download: bool) -> Source:
    """Reads a TFDS image classification data set with splits `train` and `test`.

    It is read through TFDS's random-access data source, which needs no TensorFlow; only a first
    download does, since TFDS prepares data sets with it. The decoded arrays are cached.

    Raises:
      UsageError: if the data set cannot be had, or is not one of labelled images.
    """
    directory = _data_dir(name, data_dir)
    with _quiet():
        builder = _builder(name, directory, download)
        features = builder.info.features
        if not {"image", "label"} <= set(features) or not {"train", "test"} <= set(builder.info.splits):
            raise UsageError(
                f"config.dataset={name!r} is not allowed: it must have the features image and "
                "label, and the splits train and test"
            )
        files = [Path(path) for split in ("train", "test") for path in builder.info.splits[split].filepaths]
        arrays = cache.load_or_make(name, f"{name} {builder.info.version}", files, lambda: _decode(name, builder))
    return Source(
        train={"image": arrays["train_image"], "label": arrays["train_label"]},
        test={"image": arrays["test_image"], "label": arrays["test_label"]},
        num_classes=features["label"].num_classes,
    )


def _data_dir(name: str, data_dir: str | None) -> str | None:
    """The config's directory, else $TFDS_DATA_DIR, else one beside the repository, else TFDS's."""
    if data_dir or (data_dir := os.environ.get("TFDS_DATA_DIR")):
        return data_dir
    return str(_SHARED) if (_SHARED / name).is_dir() else None


def _builder(name: str, data_dir: str | None, download: bool) -> Any:
    """A TFDS builder whose data are on disk, in a format with random access."""
    import tensorflow_datasets as tfds

    where = data_dir or str(Path.home() / "tensorflow_datasets")
    advice = (
        "set --config.data_dir or TFDS_DATA_DIR to where it is, or prepare it with "
        f"`tfds build {name} --file_format=array_record --data_dir={where}`, or use "
        "--config.dataset=digits, which needs no download"
    )
    try:
        builder = tfds.builder(name, data_dir=data_dir, file_format="array_record")
        if not builder.is_prepared():
            if not download:
                raise UsageError(f"data set {name!r} is not in {where}: {advice}")
            print(f"downloading {name} to {where}", flush=True)
            builder.download_and_prepare()
        return builder
    except tfds.core.DatasetNotFoundError as error:
        raise UsageError(f"TFDS has no data set {name!r} and {where} has none: {advice}") from error
    except UsageError:
        raise
    # Whatever goes wrong in a download (network, disk, TensorFlow not installed, checksums), the
    # user's next step is the same.
    except Exception as error:
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise UsageError(
            f"data set {name!r} could not be had from {where} ({type(error).__name__}: {reason}): {advice}"
        ) from error


def _decode(name: str, builder: Any) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for split in ("train", "test"):
        source = builder.as_data_source(split=split)
        image = np.empty((len(source), *source[0]["image"].shape), np.uint8)
        label = np.empty(len(source), np.int32)
        for i in range(len(source)):
            example = source[i]
            image[i], label[i] = example["image"], example["label"]
            if (i + 1) % _BLOCK == 0 or i + 1 == len(source):
                print(f"decoding {name} {split}: {i + 1} of {len(source)} images", flush=True)
        arrays |= {f"{split}_image": image, f"{split}_label": label}
    return arrays


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps TFDS's advice (an optional decoder, older data folders) off stderr."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
