"""What the top-k loss adds to a step of fine-tuning: ``python -m scripts.bench.losses``.

Times training steps of ``configs/cifar100_vit.py`` that differ in the loss alone, taking turns, and beside them each
loss by itself with its gradient, on logits of the same shape. The overhead is given twice: as the ratio of the medians
of whole steps, which the noise of the machine can exceed many times, and as what the loss by itself takes longer than
cross-entropy, in units of a step. Random images; the weights are as initialised. About six minutes on two cores.
Writes the section ``losses`` of ``<results>/<hardware>.json``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.cifar100_vit import get_config
from experiments.cifar100_vit import experiment
from experiments.cifar100_vit.losses import fine_tuning_loss
from experiments.core import console
from experiments.core.input.dataset import Data
from experiments.core.training import experiment as experiment_lib
from scripts.bench import record, training
from scripts.bench.failure import LostDeviceError, caught
from scripts.bench.timing import Budget, interleave

_MODULE = "scripts.bench.losses"

NUM_CLASSES = 100
REFERENCE = "cross-entropy"
LOSSES: dict[str, dict[str, Any]] = {
    REFERENCE: {"name": "xent"},
    "top-3, p = 2": {"name": "topk", "p": 2.0},
    "top-3, p = 4/3": {"name": "topk", "p": 4 / 3},
    "top-3, p = 2, smooth target": {"name": "topk", "p": 2.0, "target": "smooth"},
    "top-3, p = 4/3, smooth target": {"name": "topk", "p": 4 / 3, "target": "smooth"},
}
# Of a step with cross-entropy. The paper's are 1.02 and 1.05.
LIMITS = {"top-3, p = 2": 1.01, "top-3, p = 4/3": 1.02}


def experiments(variant: str, size: int, data: Data) -> dict[str, experiment_lib.Experiment]:
    """By loss."""
    made = {}
    for name, fields in LOSSES.items():
        config = get_config()
        config.update({"pretrained": "", "accelerator": False})
        config.model.update(variant=variant, dtype="bfloat16" if jax.default_backend() != "cpu" else "float32")
        config.input.size = size
        config.loss.update(fields)
        made[name] = experiment.RECIPE.build(config, data)
    return made


def alone(batch_size: int, failed: MutableMapping[str, str]) -> dict[str, Callable[[], Any]]:
    """For every loss a function that computes its mean and gradient, compiled; or why it `failed`."""
    rng = np.random.default_rng(0)
    logits = jnp.asarray(rng.normal(size=(batch_size, NUM_CLASSES)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, NUM_CLASSES, batch_size), jnp.int32)
    calls: dict[str, Callable[[], Any]] = {}
    for name, fields in LOSSES.items():
        loss = fine_tuning_loss(**fields)
        both = jax.jit(jax.value_and_grad(lambda logits, labels, loss=loss: loss(logits, labels).mean()))
        with caught(failed, name):
            calls[name] = training.called(both, logits, labels)
    return calls


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """What the record holds.

    Raises:
      LostDeviceError: a contestant has ended the device.
    """
    failed: dict[str, str] = {}
    by_itself = interleave(alone(options.batch_size, failed), Budget(10.0, fewest=20, most=2000), failed=failed)
    examples = training.random_images(options.batch_size, options.size, NUM_CLASSES)
    data = Data(train=examples, evaluation=examples, num_classes=NUM_CLASSES, prefix="test")
    # Under names of their own: a loss that fails in a step may be timed alone, and the other way round.
    failed_steps: dict[str, str] = {}
    calls = training.steps(experiments(options.variant, options.size, data), examples, failed_steps)
    print(f"timing for {options.seconds:g} s", flush=True)
    times = interleave(calls, Budget(options.seconds, fewest=3, most=200), failed=failed_steps)
    failed |= {f"step, {name}": reason for name, reason in failed_steps.items()}
    rows = training.overheads(times, by_itself, REFERENCE)
    targets = [
        training.target(
            f"1 + (time of {name} less that of {REFERENCE}) / step",
            limit,
            rows.get(name, {}).get("one_plus_extra_over_step"),
        )
        for name, limit in LIMITS.items()
    ]
    settings = {"variant": options.variant, "size": options.size, "batch_size": options.batch_size}
    return {"settings": settings, "losses": rows, "failed": failed, "targets": targets}


def main(arguments: Sequence[str]) -> int:
    """Runs the command; 1 if a contestant failed."""
    parser = record.parser(_MODULE, __doc__)
    parser.add_argument("--variant", default="B/16", help="of the vision transformer: a size, a slash, the patch size")
    parser.add_argument("--size", type=int, default=384, help="side of the images in pixels")
    parser.add_argument("--batch_size", type=int, help="images a step (64; on a CPU 2)")
    parser.add_argument("--seconds", type=float, default=240.0, help="of timed steps, all together")
    options = record.parse(parser, arguments)
    if options.batch_size is None:
        options.batch_size = 64 if jax.default_backend() != "cpu" else 2
    environment = record.begin(_MODULE, arguments, options.results)

    try:
        document = measure(options)
    except LostDeviceError as error:
        return training.lost(options.results, "losses", environment, error)
    training.report(options.results, "losses", environment, document, "losses")
    return int(bool(document["failed"]))


if __name__ == "__main__":
    console.run(main)
