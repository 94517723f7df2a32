"""Whether a prediction depends on its neighbours: `python -m experiments.vmoe.batches WORKDIR... --out=DIR`.

Evaluates trained networks with hard, relaxed or token choice on all test images, in batches of 1 to 1,024 images, a
batch being one group, in two ways:

batch     as in training: k and the buffers in proportion to the batch, rounded up (k of the relaxed router is not)
alone     each token on its own: by the threshold of each expert, averaged over the groups of training images, without
          noise; or, with token choice, as it chooses. Buffers hold all tokens

Alone, the network runs in the smallest and in the largest batches; what experts take of batches between is counted from
the smallest. A batch that the test images do not fill has the first ones again, which are not counted, nor is what its
experts take. Workdirs must have their last checkpoint. Nothing is chosen here.
"""

import argparse
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

import ops
from experiments.core import console
from experiments.core.config import require, require_one_of, to_json
from experiments.core.errors import UsageError
from experiments.core.input.dataset import Data
from experiments.core.record.environment import describe
from experiments.core.record.files import read_object, write_json
from experiments.core.record.workdir import Workdir
from experiments.core.training import checkpoint
from experiments.core.training.experiment import Params, Setup
from experiments.core.training.program import Program
from experiments.vision.networks import inputs_of
from experiments.vmoe import outputs
from experiments.vmoe.experiment import RECIPE, make_model, make_router, routing_shape
from experiments.vmoe.routers import RelaxedExpertChoice, ThresholdExpertChoice, TokenChoice

SIZES = (1, 4, 25, 256, 1024)  # images of a batch
BATCH, ALONE = "batch", "alone"
THRESHOLD_IMAGES = 10_000  # training images, at most, whose thresholds are averaged
_AT_ONCE = 1000  # images, about
_ADVICE = "train it again"

Thresholds = dict[str, ops.TopkThreshold]  # [E], by block; of token choice there are none
Trained = RelaxedExpertChoice | TokenChoice


class Found(NamedTuple):
    """What a network makes of N images: classes [N], and of each layer, by block, what its experts E take of them.

    Attributes:
      classes: [N], the predicted ones.
      served: [N, E], the tokens of each image in the buffer of an expert.
      without: [N], the share of its tokens in no buffer.
      chosen: [N], the tokens that experts select, in their buffers or not; a mean over the images of a batch.
    """

    classes: Any
    served: dict[str, Any]
    without: dict[str, Any]
    chosen: dict[str, Any]


def study(path: str, sizes: Sequence[int]) -> dict[str, Any]:
    """Returns the record of a finished run: its config and environment, and what each way gives at each size, by seed.

    A row has, by seed: `precision` at 1 in percent; `tokens` of an expert for each training group's worth of images;
    `variation`, the coefficient of variation of that number over experts and batches; the tokens `without` an expert
    and those `dropped`, in percent. Tokens are counted in buffers, but for `dropped`: those that buffers of the
    training capacity, in proportion, have no room for. Means over the layers. `changed`: the images with another class
    in the last of `sizes` than in the first, in percent; sizes rise.

    Raises:
      UsageError: the run is not finished, has no checkpoint of its end or too few test images, or another router.
    """
    workdir = Workdir(path)
    if not workdir.is_done():
        raise UsageError(f"{path} is not done: {_ADVICE}")
    config = ml_collections.ConfigDict(read_object(workdir.config, _ADVICE))
    program = Program(Setup(RECIPE, config, RECIPE.load(config)))
    data, router = program.setup.data, trained_router(config)
    if len(data.evaluation["label"]) < sizes[-1]:
        raise UsageError(f"{path} has fewer test images than the {sizes[-1]} of a batch")
    evaluate = {(BATCH, size): _evaluation(config, data, router, size) for size in sizes}
    evaluate |= {(ALONE, size): _evaluation(config, data, router, size, alone=True) for size in (sizes[0], sizes[-1])}
    find = _thresholds(config, data, router) if isinstance(router, RelaxedExpertChoice) else lambda params: {}
    rows: list[dict[str, Any]] = [{"way": way, "images": size} for way in (BATCH, ALONE) for size in sizes]
    changed: dict[str, list[float]] = {BATCH: [], ALONE: []}
    for params in _params_by_seed(workdir, program):
        thresholds = find(params)
        found = {
            (way, size): each(params, thresholds if way == ALONE else {}) for (way, size), each in evaluate.items()
        }
        for row in rows:
            share = Fraction(row["images"], config.moe.group_images)
            of_size = found.get((row["way"], row["images"]), found[ALONE, sizes[0]])
            values = _measure(of_size, row["images"], float(share), proportional(router, share).capacity)
            values["precision"] = 100.0 * float(np.mean(of_size.classes == data.evaluation["label"]))
            for name, value in values.items():
                row.setdefault(name, []).append(value)
        for way, shares in changed.items():
            differ = found[way, sizes[0]].classes != found[way, sizes[-1]].classes
            shares.append(100.0 * float(np.mean(differ)))
    environment = read_object(workdir.environment, _ADVICE)
    return {"config": to_json(config), "environment": environment, "rows": rows, "changed": changed}


def _measure(found: Found, size: int, share: float, slots: int) -> dict[str, float]:
    """The values of a row but for the precision, of whole batches."""
    layers = []
    for block, served in found.served.items():
        whole = len(served) // size * size
        tokens = served[:whole].reshape(-1, size, served.shape[1]).sum(axis=1, dtype=np.float64)  # [G, E]
        kept = np.minimum(tokens, slots).sum() / found.chosen[block][:whole].sum(dtype=np.float64)
        layers.append(
            {
                "tokens": tokens.mean() / share,
                "variation": tokens.std() / tokens.mean(),
                "without": 100.0 * found.without[block][:whole].mean(dtype=np.float64),
                "dropped": 100.0 * max(0.0, 1.0 - kept),
            }
        )
    return {name: float(np.mean([layer[name] for layer in layers])) for name in layers[0]}


def trained_router(config: ml_collections.ConfigDict) -> Trained:
    """The router of a config, the hard one as a relaxed one with lam = 0, which it is.

    Raises:
      UsageError: it is another, or relaxed by a mask that has no exact threshold or no constant lam.
    """
    fields, shape = config.router, routing_shape(config)
    require_one_of("router.name", fields.name, ("hard", "relaxed", "token_choice"))
    if fields.name == "hard":
        return RelaxedExpertChoice(shape.k, shape.k, 0.0, score=fields.score)
    router = make_router(config, fields.lam.start)
    assert isinstance(router, Trained)
    if isinstance(router, RelaxedExpertChoice):
        require(router.iterations is None, "router.dykstra", fields.dykstra, "0")
        require(fields.lam.schedule == "constant", "router.lam.schedule", fields.lam.schedule, "constant")
    return router


def proportional(router: Trained, share: Fraction) -> Trained:
    """The router for groups of another size, `share` times that of training; slots, and k without lam, rounded up."""
    router = dataclasses.replace(router, capacity=math.ceil(share * router.capacity))
    if isinstance(router, TokenChoice):
        return router
    k = share * Fraction(router.k)
    return dataclasses.replace(router, k=float(k) if router.lam else math.ceil(k))


def _params_by_seed(workdir: Workdir, program: Program) -> Iterator[Params]:
    config = program.setup.config
    step, _ = checkpoint.find(workdir.checkpoints)
    if step != config.steps:
        raise UsageError(f"{workdir.path} has no checkpoint of step {config.steps}: {_ADVICE}")
    state, _ = checkpoint.restore(workdir.checkpoints / str(step), program.state, to_json(config))
    for seed in range(len(config.seeds)):
        yield (
            jax.tree.map(lambda leaf, seed=seed: leaf[seed], state.params) if program.setup.seed_axis else state.params
        )


def _thresholds(
    config: ml_collections.ConfigDict, data: Data, router: RelaxedExpertChoice
) -> Callable[[Params], Thresholds]:
    """Returns a function of parameters: the mean thresholds of the groups of training images."""
    network, prepare = make_model(config, data.num_classes, router), inputs_of(config).prepare_stored
    images = data.train["image"][:THRESHOLD_IMAGES]
    groups = len(images) // config.moe.group_images

    @jax.jit
    def of_groups(params: Params, images: jax.Array) -> Thresholds:
        seen = outputs.router_logits(network, params, prepare(images))
        return {block: router.thresholds(logits) for block, logits in seen.items()}

    def find(params: Params) -> Thresholds:
        numbers = _parts(groups * config.moe.group_images, config.moe.group_images)
        parts = [of_groups(params, images[part]) for part in numbers]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:groups].mean(axis=0), *parts)

    return find


def _parts(count: int, unit: int) -> Iterator[np.ndarray]:
    """The numbers of `count` images in equal parts of whole units; the last is filled up with the first."""
    size = unit * max(1, _AT_ONCE // unit)
    for start in range(0, count, size):
        yield np.arange(start, start + size) % count


def _evaluation(
    config: ml_collections.ConfigDict, data: Data, trained: Trained, size: int, *, alone: bool = False
) -> Callable[[Params, Thresholds], Found]:
    """Returns a function of parameters and thresholds: what the network makes of all images, in batches of `size`."""
    router, prepare = proportional(trained, Fraction(size, config.moe.group_images)), inputs_of(config).prepare_stored
    in_batches = config.copy_and_resolve_references()
    in_batches.moe.group_images = size
    if alone:
        in_batches.moe.dispatcher = "dense"

    @jax.jit
    def apply(params: Params, thresholds: Thresholds, images: jax.Array) -> Found:
        by_threshold = {
            block: ThresholdExpertChoice(threshold, router.capacity, config.router.score)
            for block, threshold in thresholds.items()
        }
        network = make_model(in_batches, data.num_classes, by_threshold or router)
        found = outputs.apply(network, params, prepare(images))
        experts = config.moe.num_experts
        return Found(
            found.logits.argmax(axis=1),
            {block: found.experts_of_images(block) for block in found.assigned},
            {block: 1 - of.any(axis=2).reshape(len(images), -1).mean(axis=1) for block, of in found.assigned.items()},
            {block: jnp.repeat(of["support"] * experts / size, size) for block, of in found.routing.items()},
        )

    def evaluate(params: Params, thresholds: Thresholds) -> Found:
        images, count = data.evaluation["image"], len(data.evaluation["label"])
        parts = [apply(params, thresholds, images[numbers]) for numbers in _parts(count, size)]
        return jax.tree.map(lambda *arrays: np.concatenate(arrays)[:count], *parts)

    return evaluate


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.vmoe.batches", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("workdirs", nargs="+", metavar="WORKDIR", help="of a finished run")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where NAME.json of each is written")
    options = parser.parse_args(arguments)
    environment = describe(["python", "-m", "experiments.vmoe.batches", *arguments])
    options.out.mkdir(parents=True, exist_ok=True)
    for path in options.workdirs:
        found = study(path, SIZES)
        record = {"environment": environment, "threshold_images": THRESHOLD_IMAGES, "run": found}
        write_json(options.out / f"{Path(path).name}.json", record)
        print(f"{path}: {found['changed']}", flush=True)
    return 0


if __name__ == "__main__":
    console.run(main)
