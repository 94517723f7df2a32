"""Trains the best of a table once more and keeps it for NumPy: `python -m scripts.networks NAME ...`.

One seed, at the setting that was chosen for the table. `results/networks/NAME.npz` holds the arrays, `NAME.json` the
config, the environment and the last row of the run. A file is written only if what is computed from its arrays alone is
what the run measured. `results/networks/README.md` says how to use them.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from experiments.core import console
from experiments.core.config import leaves, reading
from experiments.core.errors import UsageError
from experiments.core.input.dataset import Data
from experiments.core.record.files import read_object, write_compressed, write_json
from experiments.core.record.workdir import Workdir
from experiments.core.report.finding import Numbers
from experiments.core.report.markdown import grid
from experiments.core.suite import plan
from experiments.core.training import train
from experiments.core.training.experiment import Params
from experiments.core.training.recorder import load_params
from experiments.learned_masks.experiment import FIRST_BLOCK, PATTERNS, dense_head
from experiments.mnist_pruning.networks import INPUTS
from experiments.vision import efficientnet_weights
from experiments.vision.efficientnet import EfficientNetLite0
from experiments.vmoe import experiment as vmoe
from experiments.vmoe import outputs
from experiments.vmoe.layer import MoeLayer
from ops.pruning import Pruner, Scored
from scripts.report import RESULTS

DIRECTORY = RESULTS / "networks"
SEED = 0
_ADVICE = "put back a copy of it, or make it again"
_BLOCK = 1000  # images at once
_HEAD = "classifier/"  # the network has a convolution of the name "head"

Arrays = dict[str, np.ndarray]


class Kept(NamedTuple):
    """A file to keep: the run that it comes from, and how its arrays are taken and checked.

    Attributes:
      experiment, preset, run: a run of a suite, whose choices are those of the directory `results`.
      what: the name of it in the table.
      metric: what the table shows of the run's last row, by dotted name.
      arrays: the arrays to keep, from the parameters, the config and the data of the run.
      measure: the metric as the arrays alone give it on the data.
    """

    experiment: str
    results: str
    preset: str
    run: str
    what: str
    metric: str
    arrays: Callable[[Params, ml_collections.ConfigDict, Data], Arrays]
    measure: Callable[[Numbers, Data], float]


def layers(params: Params, config: ml_collections.ConfigDict, data: Data) -> Arrays:
    """Returns the pruned kernels and the biases of a network on MNIST, and what scales its inputs."""
    shift, scale = INPUTS[config.inputs](data)
    parts, of_layers = {"W": "kernel", "b": "bias"}, params["hardened"].items()
    arrays = {f"{part}{layer}": parameters[leaf] for layer, parameters in of_layers for part, leaf in parts.items()}
    return arrays | {"shift": np.float32(shift), "scale": np.float32(scale)}


def logits(arrays: Numbers, images: np.ndarray) -> np.ndarray:
    """Images [B, 28, 28, 1] in [0, 255] to logits [B, 10], by NumPy alone."""
    x = (images.reshape(len(images), -1).astype(np.float32) - arrays["shift"]) / arrays["scale"]
    last = max(int(name[1:]) for name in arrays if name.startswith("W"))
    for layer in range(1, last):
        x = np.maximum(x @ arrays[f"W{layer}"] + arrays[f"b{layer}"], 0)
    return x @ arrays[f"W{last}"] + arrays[f"b{last}"]


def error(arrays: Numbers, data: Data) -> float:
    """Returns the percentage of images that `layers` get wrong."""
    return 100 * float((logits(arrays, data.evaluation["image"]).argmax(axis=-1) != data.evaluation["label"]).mean())


def masks(params: Params, config: ml_collections.ConfigDict, data: Data) -> Arrays:
    """Returns the hard masks of EfficientNet-Lite0's kernels by path, bool [1, 1, C, C'], and the head behind them."""
    scores = flatten_dict(params["scores"], sep="/")
    pruner = Pruner(lam=0.0, **PATTERNS[config.mask.pattern])
    hard = jax.jit(pruner.harden)(Scored(jax.tree.map(np.ones_like, scores), scores))
    _, head = dense_head(config)
    masks = {name: np.asarray(mask) != 0 for name, mask in hard.items()}
    return masks | {f"{_HEAD}{name}": array for name, array in head.items()}


def masked_accuracy(arrays: Numbers, data: Data) -> float:
    """Returns the percentage of images that are right with the public weights, masked, and the head."""
    model = EfficientNetLite0(data.num_classes, first_block=FIRST_BLOCK)
    weights = efficientnet_weights.load()
    images, labels = data.evaluation["image"], data.evaluation["label"]
    shapes = jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, *images.shape[1:]), "float32"))
    kept = [name for name in shapes["params"] if name != "classifier"]
    kernels = flatten_dict({name: weights["params"][name] for name in kept}, sep="/")
    kernels |= {name: kernels[name] * mask for name, mask in arrays.items() if mask.dtype == bool}
    head = {name.removeprefix(_HEAD): array for name, array in arrays.items() if name.startswith(_HEAD)}
    params = unflatten_dict(kernels, sep="/") | {"classifier": head}
    variables = {"params": params, "batch_stats": {name: weights["batch_stats"][name] for name in kept}}

    @jax.jit
    def predict(maps: jax.Array) -> jax.Array:
        output: Any = model.apply(variables, maps.astype(jnp.float32))
        return jnp.argmax(output.logits, axis=-1)

    blocks = [np.asarray(predict(images[at : at + _BLOCK])) for at in range(0, len(images), _BLOCK)]
    return 100 * float((np.concatenate(blocks) == labels).mean())


def linear_head(params: Params, config: ml_collections.ConfigDict, data: Data) -> Arrays:
    """Returns a linear head on the features of a frozen network: kernel [D, n] and bias [n]."""
    (layer,) = params.values()
    return {name: np.asarray(layer[name]) for name in ("kernel", "bias")}


def top3_accuracy(arrays: Numbers, data: Data) -> float:
    """Returns the percentage of images whose label is among the three largest logits of `linear_head`."""
    features, labels = data.evaluation["image"], data.evaluation["label"]
    order = np.argsort(-(features.astype(np.float32) @ arrays["kernel"] + arrays["bias"]), axis=-1)
    return 100 * float((order[:, :3] == labels[:, None]).any(axis=-1).mean())


def router(params: Params, config: ml_collections.ConfigDict, data: Data) -> Arrays:
    """Returns by block the kernel [D, E] of the router, the tokens [S, D] of the first group, and who takes them.

    That is `taken`, bool [S, E]; the images of the group are the first ones that evaluate.
    """
    network = vmoe.make_model(config, data.num_classes, vmoe.make_router(config, config.router.lam.end))
    tokens = []

    def record(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if isinstance(context.module, MoeLayer) and context.method_name == MoeLayer.router_logits.__name__:
            tokens.append(np.asarray(args[0][0]))
        return call(*args, **kwargs)

    with nn.intercept_methods(record):
        output = outputs.apply(network, params, jnp.asarray(data.evaluation["image"][: config.moe.group_images]))
    kernels = [leaf for name, leaf in sorted(flatten_dict(params, sep="/").items()) if name.endswith("/router")]
    arrays: Arrays = {}
    for kernel, seen, (block, taken) in zip(kernels, tokens, sorted(output.assigned.items()), strict=True):
        arrays |= {f"{block}/kernel": kernel, f"{block}/tokens": seen, f"{block}/taken": np.asarray(taken[0])}
    return arrays


def choices_alike(arrays: Numbers, data: Data) -> float:
    """Returns the percentage of pairs of token and expert on which the k largest logits and the network agree."""
    alike = []
    for block in sorted({name.split("/")[0] for name in arrays}):
        scores, taken = arrays[f"{block}/tokens"] @ arrays[f"{block}/kernel"], arrays[f"{block}/taken"]
        ranks = np.argsort(np.argsort(-scores, axis=0, kind="stable"), axis=0)
        alike.append((ranks < taken.sum(axis=0)) == taken)
    return 100 * float(np.mean(alike))


NETWORKS = {
    "mnist-300-100": Kept(
        experiment="mnist_pruning",
        results="mnist_lenet",
        preset="lenet",
        run="best/network-identity_straight_through-0.02",
        what="LeNet-300-100, 2 % of the network kept, the gradient to all weights",
        metric="hardened_error",
        arrays=layers,
        measure=error,
    ),
    "cifar100-mask": Kept(
        experiment="learned_masks",
        results="learned_masks",
        preset="masks",
        run="final-fifth-edge_popup",
        what="masks of EfficientNet-Lite0, 20 % of each matrix kept, and a head; edge-popup",
        metric="test_accuracy",
        arrays=masks,
        measure=masked_accuracy,
    ),
    "cifar100-head": Kept(
        experiment="cifar100_vit",
        results="cifar100_pretrained",
        preset="pretrained",
        run="final-top1-p4_3",
        what="a linear head on EfficientNet-Lite0, top-1 loss with p = 4/3",
        metric="test_accuracy/3",
        arrays=linear_head,
        measure=top3_accuracy,
    ),
    "vmoe-router": Kept(
        experiment="vmoe",
        results="vmoe_tokens",
        preset="longer",
        run="final-straight_through-3200steps",
        what="two routers of 32 experts, a straight-through top-k, and a group of tokens",
        metric="test_precision_at_1",
        arrays=router,
        measure=choices_alike,
    ),
}


def make(name: str) -> list[Path]:
    """Trains `name` of `NETWORKS`, and the run whose weights it starts from; returns the paths of its two files.

    Raises:
      UsageError: what follows from the arrays is not what the run measured.
    """
    kept = NETWORKS[name]
    suite = plan.find(f"experiments.{kept.experiment}.suite")
    runs = {run.name: run for run in suite.presets[kept.preset]()}
    with tempfile.TemporaryDirectory() as scratch:
        for run in filter(None, (runs.get(runs[kept.run].weights_of or ""), runs[kept.run])):
            choices = read_object(RESULTS / kept.results / "choices.json", _ADVICE) if run.best_of else {}
            setting = {**(choices[run.best_of]["setting"] if run.best_of else {}), **run.setting}
            config = suite.config(run, Path(scratch), setting)
            config.update({"seeds": (SEED,), "export_params": True})
            workdir = Workdir(Path(scratch) / run.name)
            train.run(suite.recipe, config, workdir.path)
        record = {
            # Weights that it starts from lay in the scratch directory, too.
            "config": read_object(workdir.config, _ADVICE) | ({"pretrained": run.weights_of} if run.weights_of else {}),
            "environment": read_object(workdir.environment, _ADVICE),
            "final": workdir.read_summary()["final"],
        }
        with reading(kept.experiment):
            data = suite.recipe.load(config)
        arrays = kept.arrays(load_params(workdir.path)[1], config, data)
    require_same(kept, arrays, data, record["final"])
    write_json(DIRECTORY / f"{name}.json", record)
    write_compressed(DIRECTORY / f"{name}.npz", arrays)
    return [DIRECTORY / f"{name}.npz", DIRECTORY / f"{name}.json"]


def require_same(kept: Kept, arrays: Numbers, data: Data, final: Any) -> None:
    """Checks what the arrays alone give, but for rounding, against the run's last row; routers against the network."""
    actual, expected = kept.measure(arrays, data), 100.0 if kept.measure is choices_alike else measured(kept, final)
    if abs(actual - expected) > 0.05:  # images on the edge between two classes, by rounding
        raise UsageError(f"{kept.run}: its arrays give {actual:.2f} %, and its run gave {expected:.2f} %")


def measured(kept: Kept, final: Any) -> float:
    """Returns the metric of a last row."""
    return float(dict(leaves(final, prefix="", between="/"))[f"{kept.metric}/mean"])


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the lines of the table of results/networks, by the name of its block."""
    cells = []
    for name, kept in NETWORKS.items():
        path = results / "networks" / f"{name}.json"
        if path.exists():
            value = f"{kept.metric} {measured(kept, read_object(path, _ADVICE)['final']):.2f} %"
            size = path.with_suffix(".npz").stat().st_size
            cells.append([f"[{name}]({name}.npz)", kept.what, value, f"{size / 1024:.0f}"])
    return {"networks": grid(["file", "what", "last row", "KiB"], cells, text=3)} if cells else {}


def main(names: Sequence[str]) -> int:
    """The command; returns its exit status."""
    if unknown := [name for name in names if name not in NETWORKS]:
        raise UsageError(f"{unknown[0]!r} is not one of {', '.join(NETWORKS)}")
    for name in names or NETWORKS:
        print(*make(name), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    console.run(main)
