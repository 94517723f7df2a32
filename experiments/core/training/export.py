"""What a finished run leaves as files that any program with NumPy reads, if its config asks for them.

config.export_params      its parameters; of a single seed; False if left out
config.export_examples    what its experiment says of each evaluated example (`Experiment.examine`); False if left out
config.export_probe       what its experiment's probe finds at the end; False if left out

`params.npz` has one float32 array per parameter, under its path in the tree joined by slashes
("Transformer/encoder_norm/scale"): the layout of big_vision without a prefix. `examples.npz` has arrays [S, N], of
seeds and examples in the order of the data set; `probe.npz` has boolean arrays [S, ...].
"""

import hashlib
import io
from pathlib import Path

import jax
import ml_collections
import numpy as np
from jax.experimental import multihost_utils
from jax.tree_util import keystr, tree_leaves_with_path

from experiments.core.config import require
from experiments.core.record.files import replacing, write_atomically
from experiments.core.training.experiment import Params


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.export_params`, `config.export_examples` and `config.export_probe`, which may be left out."""
    for name in ("export_params", "export_examples", "export_probe"):
        export = config.get(name, False)
        require(isinstance(export, bool), name, export, "True or False")
    if config.get("export_params"):
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


def write_compressed(path: Path, arrays: dict[str, np.ndarray]) -> str:
    """Writes an `.npz` file of `arrays` by name, compressed and atomically; returns its SHA-256."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    content = buffer.getvalue()
    write_atomically(path, content)
    return hashlib.sha256(content).hexdigest()
