"""What a finished run leaves as files that any program with NumPy reads, if its config asks for them.

config.export_params      its parameters, or what its experiment makes of them (`Experiment.exported`); of a single
                          seed; False if left out
config.export_examples    what its experiment says of each evaluated example (`Experiment.examine`); False if left out
config.export_probe       what its experiment's probe finds at the end; False if left out
config.export_pictures    images that its experiment makes (`Experiment.pictures`), and histograms of its parameters, of
                          all seeds, for the page of runs; False if left out

`params.npz` has one float32 array per parameter, under its path in the tree joined by slashes
("Transformer/encoder_norm/scale"): the layout of big_vision without a prefix. `examples.npz` has arrays [S, N], of
seeds and examples in the order of the data set; `probe.npz` has boolean arrays [S, ...]; what `pictures.npz` has,
`record/pictures.py` says.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import jax
import ml_collections
import numpy as np
from flax import traverse_util
from jax.experimental import multihost_utils
from jax.tree_util import keystr, tree_leaves_with_path

from experiments.core.config import require
from experiments.core.record.files import replacing, write_atomically
from experiments.core.record.pictures import Histogram, Pictures
from experiments.core.record.workdir import Workdir
from experiments.core.training.evaluation import Evaluate
from experiments.core.training.experiment import Experiment, Params
from experiments.core.training.probe import Prober


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.export_params`, `export_examples`, `export_probe` and `export_pictures`, which may be left out."""
    for name in ("export_params", "export_examples", "export_probe", "export_pictures"):
        export = config.get(name, False)
        require(isinstance(export, bool), name, export, "True or False")
    if config.get("export_params"):
        require(len(config.seeds) == 1, "seeds", config.seeds, "a single one where export_params=True")


def validate_for(name: str, experiment: Experiment, config: ml_collections.ConfigDict) -> None:
    """Checks that the experiment of that name has what the config asks for."""
    allowed = f"False for {name}, which has nothing to say of single examples"
    require(not config.get("export_examples") or bool(experiment.examine), "export_examples", True, allowed)
    allowed = f"False for {name}, which has no probe for these data"
    require(not config.get("export_probe") or bool(experiment.probe), "export_probe", True, allowed)


def write_files(
    config: ml_collections.ConfigDict,
    workdir: Workdir,
    params: Params,
    evaluate: Evaluate,
    probe: Prober,
    images: Mapping[str, np.ndarray],
    *,
    exported: Callable[[Params], Params] | None,
    seed_axis: bool,
) -> dict[str, str]:
    """Writes what a config asks for: all processes take part, and the first one writes.

    Args:
      config: of the run.
      workdir: where to.
      params: at its end.
      evaluate: what examines examples.
      probe: what finds.
      images: of `pictures.images`.
      exported: that of the experiment.
      seed_axis: whether parameters have one.

    Returns:
      Checksums for the summary, by name; none on processes that do not write.
    """
    writes = jax.process_index() == 0
    kept: dict[Path, dict[str, np.ndarray]] = {}
    if config.get("export_params"):
        made = jax.jit(jax.vmap(exported) if seed_axis else exported)(params) if exported else params
        arrays = gather(made, seed_axis=seed_axis)
        if writes:
            write(workdir.params, arrays)
    if config.get("export_examples"):
        kept[workdir.examples] = evaluate.examine(params)
    if config.get("export_probe"):
        kept[workdir.probe] = probe(params, 1.0)
    if config.get("export_pictures"):
        histograms = {name: Histogram.of(array) for name, array in _wholes(params)}
        kept[workdir.pictures] = Pictures(images, histograms).arrays()
    return {f"{path.stem}_sha256": write_compressed(path, arrays) for path, arrays in kept.items() if writes}


def load(path: str | Path) -> tuple[ml_collections.ConfigDict, Params]:
    """Reads the config of a run and the tree of NumPy arrays that `config.export_params` has kept in its workdir."""
    workdir = Workdir(path)
    with workdir.params.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        params = traverse_util.unflatten_dict(dict(arrays), sep="/")
    return ml_collections.ConfigDict(json.loads(workdir.config.read_text())), params


def gather(params: Params, *, seed_axis: bool) -> dict[str, np.ndarray]:
    """The parameters by name, whole on every process: all take part, whatever lies where.

    Args:
      params: of one seed, divided over the devices in any way.
      seed_axis: whether they have a leading axis, of length 1, which goes.
    """
    return {name: array[0] if seed_axis else array for name, array in _wholes(params)}


def _wholes(params: Params) -> Iterator[tuple[str, np.ndarray]]:
    """The parameters with their names, one at a time, so that no device ever holds more than one of them whole."""
    for path, leaf in tree_leaves_with_path(params):
        array = np.asarray(multihost_utils.process_allgather(leaf, tiled=True), np.float32)
        yield keystr(path, simple=True, separator="/"), array


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
