"""Features of images from a frozen network: computed once, kept on disk, and then a data set like any other.

config.features.network     efficientnet_lite0, with ImageNet's weights
               .size        side of the images in pixels; they are resized to it bicubically
               .layer       pooled [1280] in float32, what the network's own classifier sees; or
                            maps [size / 32, size / 32, 320] in float16, of its last block; or
                            before_last_block [size / 32, size / 32, 192] in float16, what that gets; or
                            stage_5 [size / 16, size / 16, 112] in float16, of five blocks before
               .directory   where they are kept; None: runs/features

They are kept in blocks, in a directory that is named after data set, network, size, layer, and a digest of all that
they follow from: images, weights, and the version of this recipe. A block's name ends in the SHA-256 of its bytes, and
it is written whole or not at all: where one was interrupted it goes on with the next block, and a block that is not
what was written is computed again. Processes that want the same at the same time share the blocks among them.
"""

import contextlib
import fcntl
import functools
import hashlib
import io
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np

from experiments.core.config import require, require_one_of
from experiments.core.errors import UsageError
from experiments.core.input import dataset as data_lib
from experiments.core.input.dataset import Data
from experiments.core.input.examples import Examples, InMemory
from experiments.core.input.sources import Source
from experiments.core.pace import pace
from experiments.core.record.files import write_atomically
from experiments.vision import efficientnet_weights
from experiments.vision.efficientnet import (
    BEFORE_LAST_BLOCK,
    REDUCTION,
    REDUCTION_5,
    STAGE_5,
    EfficientNetLite0,
    in_colour,
    preprocess,
)

NETWORKS = ("efficientnet_lite0",)
DIRECTORY = Path("runs/features")
BLOCK = 500  # images
_BATCH = 20  # images at once on CPUs, a divisor of BLOCK: more at once are slower
_VERSION = 1  # of the recipe, to be raised when features become others
_PATIENCE = 10.0  # seconds between two lines of progress

Compute = Callable[[np.ndarray], np.ndarray]


class Layer(NamedTuple):
    """What of the network's outputs is kept, in which type, and the side of a place of it, in pixels.

    Half of float32's digits are enough for maps, which take 16 times the place: they end in a network of their own.
    """

    name: str
    dtype: type
    place: int = REDUCTION


LAYERS = {
    "pooled": Layer("pooled", np.float32),
    "maps": Layer("maps", np.float16),
    BEFORE_LAST_BLOCK: Layer(BEFORE_LAST_BLOCK, np.float16),
    STAGE_5: Layer(STAGE_5, np.float16, REDUCTION_5),
}
MAPS = tuple(name for name in LAYERS if name != "pooled")


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.features`, before anything is read."""
    fields = config.features
    require_one_of("features.network", fields.network, NETWORKS)
    require_one_of("features.layer", fields.layer, LAYERS)
    allowed = f"a multiple of {REDUCTION} from {REDUCTION} to 1024"
    require(fields.size in range(REDUCTION, 1025, REDUCTION), "features.size", fields.size, allowed)


def place(config: ml_collections.ConfigDict) -> int:
    """The side of a place of the maps, in pixels."""
    return LAYERS[config.features.layer].place


def prepare(config: ml_collections.ConfigDict) -> None:
    """Checks that the weights are there.

    Raises:
      UsageError: they are not installed.
    """
    del config
    efficientnet_weights.require_installed()


def load(config: ml_collections.ConfigDict) -> Data:
    """As `dataset.load`, with features in the place of images: `image` [N, 1280], or [N, H, W, 320].

    Raises:
      UsageError: the data or the weights cannot be obtained, or the images are not in memory.
    """
    fields = config.features
    directory = Path(fields.get("directory") or DIRECTORY).expanduser()
    source = _source(
        config.dataset,
        config.data_dir,
        config.download,
        config.get("label", "label"),
        fields.size,
        fields.layer,
        directory,
    )
    return data_lib.divided(config, source)


# The runs of a suite have the same features.
@functools.lru_cache(maxsize=1)
def _source(
    dataset: str, data_dir: str | None, download: bool, label: str, size: int, layer: str, directory: Path
) -> Source:
    source = data_lib.source(dataset, data_dir, download=download, label=label)
    name = f"{dataset.replace('/', '-')}-efficientnet_lite0-{size}px-{layer}"
    digest = hashlib.sha256(f"{_VERSION} {name} {efficientnet_weights.SHA256}".encode())
    images = [_images(dataset, examples) for examples in (source.train, source.test)]
    for array in images:
        digest.update(f"{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    place = directory / f"{name}-{digest.hexdigest()[:16]}"
    network: list[Compute] = []

    def compute(batch: np.ndarray) -> np.ndarray:
        # Made when first needed: where all are there already it need not be compiled.
        if not network:
            network.append(_network(size, LAYERS[layer]))
        return network[0](batch)

    whole = sum(map(len, images))
    kept = Kept(place, compute, Progress(f"features of {dataset} at {size} pixels", whole))
    train, test = (kept.features(split, array) for split, array in zip(("train", "test"), images, strict=True))
    return Source(_with(source.train, train), _with(source.test, test), source.num_classes)


def _images(dataset: str, examples: Examples) -> np.ndarray:
    if not isinstance(examples, InMemory):
        raise UsageError(
            f"config.dataset={dataset!r} is not allowed with config.features: its images are not in memory"
        )
    return examples.arrays["image"]


def _with(examples: Examples, features: np.ndarray) -> InMemory:
    assert isinstance(examples, InMemory)
    return InMemory(examples.arrays | {"image": features})


def _network(size: int, layer: Layer) -> Compute:
    """The frozen network as a function of at most BLOCK images, any number of which compile nothing anew."""
    variables = jax.device_put(efficientnet_weights.load())
    batch = _BATCH if jax.default_backend() == "cpu" else BLOCK

    @jax.jit
    def apply(variables: Any, images: jax.Array) -> jax.Array:
        outputs = EfficientNetLite0().apply(variables, preprocess(in_colour(images), size))
        return getattr(outputs, layer.name).astype(layer.dtype)

    def compute(images: np.ndarray) -> np.ndarray:
        filled = np.concatenate([images, np.repeat(images[-1:], -len(images) % batch, axis=0)])
        parts = [np.asarray(apply(variables, filled[at : at + batch])) for at in range(0, len(filled), batch)]
        return np.concatenate(parts)[: len(images)]

    return compute


class Progress:
    """Lines that say how many images are done, and how long the rest will take."""

    def __init__(self, what: str, total: int, say: Callable[[str], None] = lambda line: print(line, flush=True)):
        self._what, self._total, self._say = what, total, say
        self._first: int | None = None
        self._start = self._last = 0.0

    def begin(self, done: int, place: Path) -> None:
        """Says once, before the first image is computed here, what is about to happen."""
        if self._first is None:
            self._say(f"{self._what}: {done} of {self._total} images are in {place}, the others are computed")
            self._first, self._start = done, time.monotonic()
            self._last = self._start

    def update(self, done: int) -> None:
        """Prints a line if some have been computed here, and there was none for a while or the last image is done."""
        now = time.monotonic()
        if self._first is not None and (now - self._last >= _PATIENCE or done == self._total):
            left = pace(done - self._first, self._total - self._first, now - self._start)
            self._say(f"{self._what}: {done} of {self._total} images, {left}")
            self._last = now


class Kept:
    """Features by blocks of images, each a file in `place`: read where it is as it was written, computed where not."""

    def __init__(self, place: Path, compute: Compute, progress: Progress):
        self._place, self._compute, self._progress = place, compute, progress
        self._before = 0  # images of the splits that are done

    def features(self, split: str, images: np.ndarray) -> np.ndarray:
        """One row for every one of `images`, in an array that cannot be written to."""
        if not len(images):
            raise UsageError(f"there are no images in {split}")
        parts = {f"{split}-{start:07d}": images[start : start + BLOCK] for start in range(0, len(images), BLOCK)}
        # Other processes may be at the same: each computes what nobody has begun, then reads what the others have done.
        for number, name in enumerate(parts):
            if not self._is_there(name):
                with self._claim(number, wait=False) as mine:
                    if mine and not self._is_there(name):
                        self._make(name, parts)
        whole: np.ndarray | None = None
        for number, (name, part) in enumerate(parts.items()):
            block = self._read(name, len(part))
            if block is None:
                with self._claim(number, wait=True):
                    block = self._read(name, len(part), mine=True)
                    block = self._make(name, parts) if block is None else block
            if whole is None:
                whole = np.empty((len(images), *block.shape[1:]), block.dtype)
            whole[BLOCK * number : BLOCK * number + len(part)] = block
        assert whole is not None
        whole.flags.writeable = False
        self._before += len(images)
        return whole

    def _make(self, name: str, parts: Mapping[str, np.ndarray]) -> np.ndarray:
        self._progress.begin(self._done(parts), self._place)
        block = self._compute(parts[name])
        self._write(name, block)
        self._progress.update(self._done(parts))
        return block

    def _done(self, parts: Mapping[str, np.ndarray]) -> int:
        """Images whose features are there, whoever has computed them."""
        return self._before + sum(len(part) for name, part in parts.items() if self._is_there(name))

    @contextlib.contextmanager
    def _claim(self, number: int, *, wait: bool) -> Iterator[bool]:
        """Keeps other processes from computing a block; whether it could be had, where it is not waited for."""
        self._place.mkdir(parents=True, exist_ok=True)
        with (self._place / ".lock").open("a") as file:
            try:
                # A byte for each block; what is locked goes with the process, however that ends.
                fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, number)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _is_there(self, name: str) -> bool:
        return any(self._place.glob(f"{name}-*.npy"))

    def _read(self, name: str, rows: int, *, mine: bool = False) -> np.ndarray | None:
        """The block as it was written, or None; what is damaged is removed where the claim is `mine`."""
        for path in sorted(self._place.glob(f"{name}-*.npy")):
            with contextlib.suppress(FileNotFoundError):  # another process, whose claim it is, has removed it
                content = path.read_bytes()
                if path.stem == f"{name}-{_sum(content)}":
                    block = np.load(io.BytesIO(content), allow_pickle=False)
                    if len(block) == rows:
                        return block
                if mine:
                    print(f"{path} is damaged: it is computed again", file=sys.stderr)
                    path.unlink()
        return None

    def _write(self, name: str, block: np.ndarray) -> None:
        buffer = io.BytesIO()
        np.save(buffer, block, allow_pickle=False)
        content = buffer.getvalue()
        write_atomically(self._place / f"{name}-{_sum(content)}.npy", content)


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
