"""Features of images from a frozen network: computed once, kept on disk, and used like any data set.

config.features.network     efficientnet_lite0, with ImageNet's weights
               .size        side of the images in pixels; they are resized to it bicubically
               .layer       pooled [1280] in float32, the input of the network's own classifier; or
                            maps [size / 32, size / 32, 320] in float16, of its last block; or
                            before_last_block [size / 32, size / 32, 192] in float16, its input; or
                            stage_5 [size / 16, size / 16, 112] in float16, the fifth of seven stages
               .directory   the directory that keeps them; None: runs/features

Each split has a file, in a directory named after data set, network, size, layer, and a digest of the images, the
weights and the version of this recipe. A damaged file is computed again. If several processes need the same file, one
computes it and the others wait (`core/input/cache.py`).
"""

import functools
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import ml_collections
import numpy as np

from experiments.core.config import require, require_one_of
from experiments.core.console import pace
from experiments.core.errors import UsageError
from experiments.core.input import cache
from experiments.core.input import dataset as data_lib
from experiments.core.input.dataset import Data
from experiments.core.input.examples import InMemory
from experiments.core.input.sources import Source
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
_BATCH = 20  # images at once on CPUs, a divisor of BLOCK; more at once are slower
_VERSION = 2  # to be raised when features or their files change
_PROGRESS_SECONDS = 10.0  # between two lines of progress

Compute = Callable[[np.ndarray], np.ndarray]  # at most BLOCK images to their features

# The outputs of the network that can be kept: their type, and the side of one of their places in pixels. Maps take 16
# times the space, and a network is trained on them, for which half precision is enough.
LAYERS: dict[str, tuple[type, int]] = {
    "pooled": (np.float32, REDUCTION),
    "maps": (np.float16, REDUCTION),
    BEFORE_LAST_BLOCK: (np.float16, REDUCTION),
    STAGE_5: (np.float16, REDUCTION_5),
}
MAPS = tuple(name for name in LAYERS if name != "pooled")


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.features`."""
    fields = config.features
    require_one_of("features.network", fields.network, NETWORKS)
    require_one_of("features.layer", fields.layer, LAYERS)
    allowed = f"a multiple of {REDUCTION} from {REDUCTION} to 1024"
    require(fields.size in range(REDUCTION, 1025, REDUCTION), "features.size", fields.size, allowed)


def pixels_per_place(config: ml_collections.ConfigDict) -> int:
    """Returns the side of a place of the maps, in pixels."""
    return LAYERS[config.features.layer][1]


def load(config: ml_collections.ConfigDict) -> Data:
    """Loads a data set in which `image` has features: [N, 1280], or maps [N, H, W, C].

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


# The runs of a suite share features.
@functools.lru_cache(maxsize=1)
def _source(
    dataset: str, data_dir: str | None, download: bool, label: str, size: int, layer: str, directory: Path
) -> Source:
    source = data_lib.source(dataset, data_dir, download=download, label=label)
    name = f"{dataset.replace('/', '-')}-efficientnet_lite0-{size}px-{layer}"
    if not (isinstance(source.train, InMemory) and isinstance(source.test, InMemory)):
        raise UsageError(
            f"config.dataset={dataset!r} is not allowed with config.features: its images are not in memory"
        )
    digest = hashlib.sha256(f"{_VERSION} {name} {efficientnet_weights.PACKAGE.sha256}".encode())
    for examples in (source.train, source.test):
        images = examples.arrays["image"]
        digest.update(f"{images.shape}".encode())
        digest.update(np.ascontiguousarray(images).data)
    place = directory / f"{name}-{digest.hexdigest()[:16]}"
    # Made when first needed, so that kept features need no compilation.
    network = functools.cache(lambda: _network(size, layer))

    def featured(split: str, examples: InMemory) -> InMemory:
        title = f"features of {split} of {dataset} at {size} pixels"
        path, images = place / f"{split}.npz", examples.arrays["image"]
        return InMemory(examples.arrays | {"image": kept(path, images, lambda batch: network()(batch), title)})

    train, test = featured("train", source.train), featured("test", source.test)
    return Source(train, test, source.num_classes, source.fingerprint)


def _network(size: int, layer: str) -> Compute:
    """Returns the frozen network as a function of at most BLOCK images; all numbers of images share one program."""
    variables, dtype = jax.device_put(efficientnet_weights.load()), LAYERS[layer][0]
    batch = _BATCH if jax.default_backend() == "cpu" else BLOCK

    @jax.jit
    def apply(variables: Any, images: jax.Array) -> jax.Array:
        outputs = EfficientNetLite0().apply(variables, preprocess(in_colour(images), size))
        return getattr(outputs, layer).astype(dtype)

    def compute(images: np.ndarray) -> np.ndarray:
        filled = np.concatenate([images, np.repeat(images[-1:], -len(images) % batch, axis=0)])
        parts = [np.asarray(apply(variables, filled[at : at + batch])) for at in range(0, len(filled), batch)]
        return np.concatenate(parts)[: len(images)]

    return compute


def kept(path: Path, images: np.ndarray, compute: Compute, title: str) -> np.ndarray:
    """Returns a row of features for each image, from the file if there is one, as a read-only array.

    Args:
      path: the file.
      images: the images [N, ...].
      compute: returns the rows of at most BLOCK images.
      title: what the lines of progress call the features.
    """

    def make() -> dict[str, np.ndarray]:
        """Computes the rows by blocks, and prints progress."""
        print(f"{title}: {len(images)} images", flush=True)
        start = last = time.monotonic()
        for at in range(0, len(images), BLOCK):
            block = compute(images[at : at + BLOCK])
            if not at:
                rows = np.empty((len(images), *block.shape[1:]), block.dtype)
            rows[at : at + BLOCK] = block
            done, now = at + len(block), time.monotonic()
            if now - last >= _PROGRESS_SECONDS or done == len(images):
                print(f"{title}: {done} of {len(images)} images, {pace(done, len(images), now - start)}", flush=True)
                last = now
        return {"features": rows}

    features = cache.kept(path, f"{path.parent.name}-{path.stem}", make)["features"]
    features.flags.writeable = False
    return features
