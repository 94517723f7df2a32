"""Measures how predictions depend on their neighbours: `python -m experiments.vmoe.batches WORKDIR... --out=DIR`.

Evaluates trained networks with hard, relaxed or token choice on all test images, in two ways:

batch     in batches of 1 to 1,024 images, each one group as in training. k and buffers are in proportion, rounded up
          (except k of the relaxed router). The last batch is filled up with the first images
alone     each token by itself, with room for all in buffers: by the threshold of each expert, a mean over groups of
          training images without noise; or as token choice does. The tokens of an expert in a batch are counted

Workdirs must have their last checkpoint. Nothing is chosen here.
"""

import argparse
import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

import ops
from experiments.core import console
from experiments.core.config import require, to_json
from experiments.core.errors import UsageError
from experiments.core.input.dataset import Data
from experiments.core.record.environment import describe
from experiments.core.record.files import read_object, write_json
from experiments.core.record.workdir import Workdir
from experiments.core.training import checkpoint
from experiments.core.training.experiment import Params
from experiments.core.training.step import Program
from experiments.vision.networks import inputs_of
from experiments.vmoe import outputs
from experiments.vmoe.experiment import RECIPE, make_model, make_router, routing_shape
from experiments.vmoe.routers import RelaxedExpertChoice, ThresholdExpertChoice, TokenChoice

SIZES = (1, 4, 25, 256, 1024)  # images of a batch
THRESHOLD_IMAGES = 10_000  # the most training images over which thresholds are averaged
_AT_ONCE = 1000  # images, about
_ADVICE = "train it again"

Thresholds = dict[str, ops.TopkThreshold]  # by block, [E]; empty for token choice
Trained = RelaxedExpertChoice | TokenChoice


class Found(NamedTuple):
    """The predictions and the routing of a network with L layers of E experts, for N images."""

    classes: Any  # [N], the predicted classes
    served: Any  # [N, L, E], the tokens of an image in the buffer of an expert
    without: Any  # [N, L], the share of an image's tokens in no buffer
    chosen: Any  # [N, L], the tokens that experts select, in buffers or not; a mean over the images of a batch


def study(path: str, sizes: Sequence[int]) -> dict[str, Any]:
    """Returns the record of a finished run: config, environment, and a row for each way and size with values by seed.

    A row has these means over layers and whole batches: `precision` at 1 in percent; `tokens` of an expert for as many
    images as a training group has; `variation`, the coefficient of variation of that number over experts and batches;
    the tokens `without` an expert and the tokens `dropped`, in percent. `dropped` are those that do not fit into
    buffers of the training capacity, in proportion. The record also has `changed`: the percentage of images with
    another class in batches of the largest size than in batches of 1.

    Raises:
      UsageError: the run is not finished, has no checkpoint of its end, too few test images, or another router.
    """
    workdir = Workdir(path)
    step, _ = checkpoint.find(workdir.checkpoints)
    if not workdir.is_done() or step != workdir.read_summary()["steps"]:
        raise UsageError(f"{path} is not done, or has no checkpoint of its end: {_ADVICE}")
    config = ml_collections.ConfigDict(read_object(workdir.config, _ADVICE))
    program = Program(RECIPE, config, RECIPE.load(config))
    data, router = program.data, trained_router(config)
    if len(data.evaluation["label"]) < max(sizes):
        raise UsageError(f"{path} has fewer test images than the {max(sizes)} of a batch")
    restored = checkpoint.Checkpoints(workdir.checkpoints, to_json(config)).restore(program.state)
    assert restored is not None  # which `find` has found
    state = restored[1]
    evaluate = {size: _evaluation(config, data, router, size) for size in sizes}
    evaluate_alone = _evaluation(config, data, router, 1, alone=True)
    find = _thresholds(config, data, router) if isinstance(router, RelaxedExpertChoice) else lambda params: {}
    rows: list[dict[str, Any]] = [{"way": way, "images": size} for way in ("batch", "alone") for size in sizes]
    changed = []
    for seed in range(len(config.seeds)):
        params = jax.tree.map(operator.itemgetter(seed), state.params) if program.seed_axis else state.params
        alone = evaluate_alone(params, find(params))
        predictions = {size: each(params, {}) for size, each in evaluate.items()}
        for row in rows:
            of_way = predictions[row["images"]] if row["way"] == "batch" else alone
            share = Fraction(row["images"], config.moe.group_images)
            values = _measure(of_way, row["images"], float(share), proportional(router, share).capacity)
            values["precision"] = 100.0 * float(np.mean(of_way.classes == data.evaluation["label"]))
            for name, value in values.items():
                row.setdefault(name, []).append(value)
        changed.append(100.0 * float(np.mean(predictions[max(sizes)].classes != predictions[1].classes)))
    environment = read_object(workdir.environment, _ADVICE)
    return {"config": to_json(config), "environment": environment, "rows": rows, "changed": changed}


def _measure(found: Found, size: int, share: float, slots: int) -> dict[str, float]:
    """Returns the values of a row except the precision."""
    count = len(found.served) // size * size
    tokens = found.served[:count].reshape(-1, size, *found.served.shape[1:]).sum(axis=1, dtype=np.float64)  # [G, L, E]
    kept = np.minimum(tokens, slots).sum(axis=(0, 2)) / found.chosen[:count].sum(axis=0, dtype=np.float64)
    return {
        "tokens": float(tokens.mean() / share),
        "variation": float((tokens.std(axis=(0, 2)) / tokens.mean(axis=(0, 2))).mean()),
        "without": 100.0 * float(found.without[:count].mean(dtype=np.float64)),
        "dropped": 100.0 * max(0.0, float(1.0 - kept.mean())),
    }


def trained_router(config: ml_collections.ConfigDict) -> Trained:
    """Returns the router of a config; the hard one is the relaxed one with lam = 0.

    Raises:
      UsageError: the router is of another kind, or is relaxed without an exact mask and a constant lam.
    """
    fields, shape = config.router, routing_shape(config)
    if fields.name == "hard":
        return RelaxedExpertChoice(shape.k, shape.k, 0.0, score=fields.score)
    router = make_router(config, fields.lam.start)
    exact = isinstance(router, RelaxedExpertChoice) and not router.iterations and fields.lam.schedule == "constant"
    allowed = "hard, token_choice, or relaxed with an exact mask and a constant lam"
    require(exact or isinstance(router, TokenChoice), "router.name", fields.name, allowed)
    return cast(Trained, router)


def proportional(router: Trained, share: Fraction) -> Trained:
    """Returns the router for groups of `share` times the training size; slots, and k if lam is 0, are rounded up."""
    router = dataclasses.replace(router, capacity=math.ceil(share * router.capacity))
    if isinstance(router, TokenChoice):
        return router
    k = share * Fraction(router.k)
    return dataclasses.replace(router, k=float(k) if router.lam else math.ceil(k))


def _map_parts(images: np.ndarray, unit: int, function: Callable[[np.ndarray], Any]) -> Any:
    """Applies a function to equal parts of the images, multiples of `unit`, and joins its results.

    The last part is filled up with the first images.
    """
    size = unit * max(1, _AT_ONCE // unit)
    parts = [function(images[np.arange(start, start + size) % len(images)]) for start in range(0, len(images), size)]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


def _thresholds(
    config: ml_collections.ConfigDict, data: Data, router: RelaxedExpertChoice
) -> Callable[[Params], Thresholds]:
    """Returns a function from parameters to thresholds: means over groups of training images."""
    network, prepare = make_model(config, data.num_classes, router), inputs_of(config).prepare_stored
    group = config.moe.group_images
    groups = min(len(data.train["image"]), THRESHOLD_IMAGES) // group

    @jax.jit
    def of_groups(params: Params, images: jax.Array) -> Thresholds:
        seen = outputs.router_logits(network, params, prepare(images))
        return {block: router.thresholds(logits) for block, logits in seen.items()}

    def find(params: Params) -> Thresholds:
        thresholds = _map_parts(data.train["image"][: groups * group], group, functools.partial(of_groups, params))
        return jax.tree.map(lambda leaf: leaf[:groups].mean(axis=0), thresholds)

    return find


def _evaluation(
    config: ml_collections.ConfigDict, data: Data, trained: Trained, size: int, *, alone: bool = False
) -> Callable[[Params, Thresholds], Found]:
    """Returns a function from parameters and thresholds to predictions for all images, in batches of `size`."""
    router, prepare = proportional(trained, Fraction(size, config.moe.group_images)), inputs_of(config).prepare_stored
    in_batches, experts = config.copy_and_resolve_references(), config.moe.num_experts
    in_batches.moe.group_images = size
    if alone:
        in_batches.moe.dispatcher = "dense"

    @jax.jit
    def apply(params: Params, thresholds: Thresholds, images: jax.Array) -> Found:
        of_blocks = {
            block: ThresholdExpertChoice(threshold, router.capacity, config.router.score)
            for block, threshold in thresholds.items()
        }
        output = outputs.apply(make_model(in_batches, data.num_classes, of_blocks or router), params, prepare(images))
        assigned = jnp.stack([of.reshape(len(images), -1, experts) for of in output.assigned.values()], axis=1)
        support = jnp.stack([of["support"] for of in output.routing.values()], axis=1)  # [G, L]
        chosen = jnp.repeat(support * experts / size, size, axis=0)
        return Found(output.logits.argmax(axis=1), assigned.sum(axis=2), 1 - assigned.any(axis=3).mean(axis=2), chosen)

    images = data.evaluation["image"]
    return lambda params, thresholds: jax.tree.map(
        lambda leaf: leaf[: len(images)], _map_parts(images, size, functools.partial(apply, params, thresholds))
    )


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.vmoe.batches", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("workdirs", nargs="+", metavar="WORKDIR", help="the workdir of a finished run")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write NAME.json for each")
    options = parser.parse_args(arguments)
    environment = describe(["python", "-m", "experiments.vmoe.batches", *arguments])
    options.out.mkdir(parents=True, exist_ok=True)
    for path in options.workdirs:
        run = study(path, SIZES)
        record = {"environment": environment, "threshold_images": THRESHOLD_IMAGES, "run": run}
        write_json(options.out / f"{Path(path).name}.json", record)
        print(f"{path}: {run['changed']}", flush=True)
    return 0


if __name__ == "__main__":
    console.run(main)
