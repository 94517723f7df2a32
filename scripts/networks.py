"""Trains the best network of a table once more and keeps it for NumPy: `python -m scripts.networks NAME ...`.

One seed, at the setting that was chosen for the table. `results/networks/NAME.npz` holds the pruned kernels and the
biases by layer, and what scales the inputs; `NAME.json` the config, the environment and the last row of the run. A file
is written only if NumPy alone gives the error of the run. `results/networks/README.md` says how to use them.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.core import console
from experiments.core.config import reading
from experiments.core.errors import UsageError
from experiments.core.input.dataset import Data
from experiments.core.record.files import read_object, write_compressed, write_json
from experiments.core.record.workdir import Workdir
from experiments.core.report.finding import Numbers
from experiments.core.report.markdown import grid
from experiments.core.suite import plan
from experiments.core.training import train
from experiments.core.training.recorder import load_params
from experiments.mnist_pruning.networks import INPUTS
from experiments.mnist_pruning.report.runs import LOOKS
from scripts.report import RESULTS

DIRECTORY = RESULTS / "networks"
SEED = 0
_PARTS = {"W": "kernel", "b": "bias"}
_ADVICE = "put back a copy of it, or make it again"


class Kept(NamedTuple):
    """A network to keep: the run of a suite, and the directory of results that has its choices."""

    results: str
    preset: str
    run: str


NETWORKS = {
    "mnist-300-100": Kept("mnist_lenet", "lenet", "best/network-identity_straight_through-0.02"),
}


def make(name: str) -> list[Path]:
    """Trains the network `name` of `NETWORKS`, and writes its two files; returns their paths.

    Raises:
      UsageError: NumPy's forward pass does not err as the run did.
    """
    kept, suite = NETWORKS[name], plan.find("experiments.mnist_pruning.suite")
    run = next(run for run in suite.presets[kept.preset]() if run.name == kept.run)
    choices = read_object(RESULTS / kept.results / "choices.json", _ADVICE) if run.best_of else {}
    with tempfile.TemporaryDirectory() as scratch:
        workdir = Workdir(Path(scratch) / name)
        config = suite.config(
            run, workdir.path, {**(choices[run.best_of]["setting"] if run.best_of else {}), **run.setting}
        )
        config.update({"seeds": (SEED,), "export_params": True})
        train.run(suite.recipe, config, workdir.path)
        record = {
            "config": read_object(workdir.config, _ADVICE),
            "environment": read_object(workdir.environment, _ADVICE),
            "final": workdir.read_summary()["final"],
        }
        layers = load_params(workdir.path)[1]["hardened"]
    with reading("mnist_pruning"):
        data = suite.recipe.load(config)
    shift, scale = INPUTS[config.inputs](data)
    arrays = {f"{part}{layer}": leaves[leaf] for layer, leaves in layers.items() for part, leaf in _PARTS.items()}
    arrays |= {"shift": np.float32(shift), "scale": np.float32(scale)}
    require_error(arrays, data, record["final"]["hardened_error"]["mean"])
    write_json(DIRECTORY / f"{name}.json", record)
    write_compressed(DIRECTORY / f"{name}.npz", arrays)
    return [DIRECTORY / f"{name}.npz", DIRECTORY / f"{name}.json"]


def logits(arrays: Numbers, images: np.ndarray) -> np.ndarray:
    """Images [B, 28, 28, 1] in [0, 255] to logits [B, 10], by NumPy alone."""
    x = (images.reshape(len(images), -1).astype(np.float32) - arrays["shift"]) / arrays["scale"]
    last = max(int(name[1:]) for name in arrays if name.startswith("W"))
    for layer in range(1, last):
        x = np.maximum(x @ arrays[f"W{layer}"] + arrays[f"b{layer}"], 0)
    return x @ arrays[f"W{last}"] + arrays[f"b{last}"]


def require_error(arrays: Numbers, data: Data, error: float) -> None:
    """Checks that NumPy's forward pass errs in `error` % of the images of `data`, but for rounding."""
    images, labels = (np.asarray(data.evaluation[part]) for part in ("image", "label"))
    wrong = 100 * float((logits(arrays, images).argmax(axis=-1) != labels).mean())
    if abs(wrong - error) > 0.05:  # images on the edge between two classes, by rounding
        raise UsageError(f"by NumPy the network errs in {wrong:.2f} % of the images, and in the run in {error:.2f} %")


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the lines of the table of results/networks, by the name of its block."""
    cells = []
    for path in sorted((results / "networks").glob("*.json")):
        record = read_object(path, _ADVICE)
        config, final = record["config"], record["final"]
        size = path.with_suffix(".npz").stat().st_size
        cells.append(
            [
                f"[{path.stem}]({path.stem}.npz)",
                LOOKS[config["method"]][0],
                f"{100 * config['density']:g} % of {'the network' if config['budget'] == 'network' else 'each matrix'}",
                f"{final['hardened_error']['mean']:.2f}",
                f"{size / 1024:.0f}",
            ]
        )
    return {"networks": grid(["file", "method", "kept", "test error, %", "KiB"], cells, text=3)} if cells else {}


def main(names: Sequence[str]) -> int:
    """The command; returns its exit status."""
    if unknown := [name for name in names if name not in NETWORKS]:
        raise UsageError(f"{unknown[0]!r} is not one of {', '.join(NETWORKS)}")
    for name in names or NETWORKS:
        print(*make(name), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    console.run(main)
