"""The parameters of a finished run as a file that any program with NumPy reads.

config.export_params    write them when the run is done; of a single seed; False if left out

`params.npz` has one float32 array per parameter, under its path in the tree joined by slashes
("Transformer/encoder_norm/scale"): the layout of big_vision without a prefix.
"""

from pathlib import Path

import jax
import ml_collections
import numpy as np
from jax.experimental import multihost_utils
from jax.tree_util import keystr, tree_leaves_with_path

from experiments.core.config import require
from experiments.core.record.files import replacing
from experiments.core.training.experiment import Params


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.export_params`, which may be left out."""
    export = config.get("export_params", False)
    require(isinstance(export, bool), "export_params", export, "True or False")
    if export:
        require(len(config.seeds) == 1, "seeds", config.seeds, "a single one where export_params=True")


def gather(params: Params, *, seed_axis: bool) -> dict[str, np.ndarray]:
    """The parameters by name, whole on every process: all take part, whatever lies where.

    Args:
      params: of one seed, divided over the devices in any way.
      seed_axis: whether they have a leading axis, of length 1, which goes.
    """

    def whole(leaf: jax.Array) -> np.ndarray:
        array = np.asarray(multihost_utils.process_allgather(leaf, tiled=True), np.float32)
        return array[0] if seed_axis else array

    # One at a time, so that no device ever holds more than one of them whole.
    return {keystr(path, simple=True, separator="/"): whole(leaf) for path, leaf in tree_leaves_with_path(params)}


def write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes an `.npz` file of `arrays` by name, atomically."""
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)
