"""Files of a finished run that any program with NumPy reads, if its config asks for them.

config.export_params      its parameters, or what its experiment makes of them (`Experiment.exported`); of a single seed
config.export_examples    what its experiment says of each evaluated example (`Experiment.examine`)

`params.npz` has one float32 array per parameter, under its path in the tree ("Transformer/encoder_norm/scale").
`examples.npz` has arrays [S, N], of seeds and examples in the order of the data set. Fields left out are False.
"""

import json
from pathlib import Path

import jax
import ml_collections
import numpy as np
from flax import traverse_util
from jax.experimental import multihost_utils
from jax.tree_util import keystr, tree_leaves_with_path

from experiments.core.config import require
from experiments.core.record.files import replacing, write_compressed
from experiments.core.record.workdir import Workdir
from experiments.core.training.experiment import Params
from experiments.core.training.program import Program


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.export_params` and `export_examples`."""
    for name in ("export_params", "export_examples"):
        export = config.get(name, False)
        require(isinstance(export, bool), name, export, "True or False")
    if config.get("export_params"):
        require(len(config.seeds) == 1, "seeds", config.seeds, "a single one where export_params=True")


def write_files(program: Program, workdir: Workdir, params: Params) -> dict[str, str]:
    """Writes what the config asks for, on the first process; all take part. Returns checksums for the summary."""
    setup, writes = program.setup, jax.process_index() == 0
    if setup.config.get("export_params"):
        exported = setup.experiment.exported
        arrays = gather(jax.jit(setup.over_seeds(exported))(params) if exported else params)
        if writes:
            arrays = {name: array[0] for name, array in arrays.items()} if setup.seed_axis else arrays
            with replacing(workdir.params) as file:
                np.savez(file, allow_pickle=False, **arrays)
    if not setup.config.get("export_examples"):
        return {}
    examined = program.evaluate.examine(params)
    return {"examples_sha256": write_compressed(workdir.examples, examined)} if writes else {}


def load(path: str | Path) -> tuple[ml_collections.ConfigDict, Params]:
    """Reads the config of a run and the tree of NumPy arrays that `config.export_params` has kept in its workdir."""
    workdir = Workdir(path)
    with workdir.params.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        params = traverse_util.unflatten_dict(dict(arrays), sep="/")
    return ml_collections.ConfigDict(json.loads(workdir.config.read_text())), params


def gather(params: Params) -> dict[str, np.ndarray]:
    """The parameters by name, whole on every process: all take part, whatever lies where."""
    # One at a time, so that no device ever holds more than one of them whole.
    return {
        keystr(path, simple=True, separator="/"): np.asarray(
            multihost_utils.process_allgather(leaf, tiled=True), np.float32
        )
        for path, leaf in tree_leaves_with_path(params)
    }
