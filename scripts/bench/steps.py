"""What a training step of the pruning experiment costs: ``python -m scripts.bench.steps``.

Times steps of the MLP of ``configs/mnist_pruning.py`` in this process, the methods taking turns, on random images of
MNIST's shape, with the weights as initialised: the learning rate is next to nothing, so that all methods stay where
they start. Writes the section ``steps`` of ``<results>/<hardware>.json``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from configs.mnist_pruning import get_config
from experiments.core import console
from experiments.core.input.batches import seeds_epoch_indices
from experiments.core.input.dataset import Data
from experiments.core.training import mesh, state, step
from experiments.mnist_pruning import experiment
from experiments.mnist_pruning.methods import METHODS
from experiments.mnist_pruning.methods.method import Method, PruningMethod, by_number
from scripts.bench import record
from scripts.bench import training as training_steps
from scripts.bench.failure import LostDeviceError, caught
from scripts.bench.timing import Budget, Summary, interleave

_MODULE = "scripts.bench.steps"

# Above each limit the pruning would be too dear to be worth its while.
LIMITS = {
    ("relaxed p=2 lam=0.1", "dense"): 2.5,
    ("relaxed p=2 lam=0.1", "hard by lax.top_k"): 1.0,
    ("relaxed p=2 lam=1e-4", "dense"): 2.5,
    ("relaxed p=2 lam=1e-4", "hard by lax.top_k"): 1.0,
}


def _hard_by_lax(config: Any, total_steps: int) -> Method:
    """Hard top-k in magnitude as one writes it with what JAX has."""
    del total_steps

    def keep(w: jax.Array, k: int) -> jax.Array:
        _, kept = lax.top_k(jnp.abs(w), k)
        return w * jnp.zeros_like(w).at[kept].set(1.0)

    return by_number(keep, config)


def contestants() -> dict[str, dict[str, Any]]:
    """Fields of the config, by name."""
    relaxed = {"method": "relaxed", "debias": True}
    return {
        "dense": {"method": "dense"},
        "hard by lax.top_k": {"method": "hard by lax.top_k"},
        "hard": {"method": "hard"},
        **{
            f"relaxed p={label} lam={lam:g}".replace("0.0001", "1e-4"): relaxed | {"p": p, "lam.start": lam}
            for label, p in (("2", 2.0), ("4/3", 4 / 3))
            for lam in (1.0, 0.1, 1e-2, 1e-4)
        },
    }


def training(fields: dict[str, Any], seeds: Sequence[int], steps: int, warm_up: int) -> Callable[[], None]:
    """A function that goes on training by ``steps`` steps, after ``warm_up`` calls of it."""
    config = get_config()
    config.update_from_flattened_dict(fields | {"seeds": tuple(seeds), "optimizer.learning_rate": 1e-12})
    rng = np.random.default_rng(0)
    size = steps * config.batch_size
    images = rng.integers(0, 256, (size, 28, 28, 1), dtype=np.uint8)
    labels = rng.integers(0, 10, size, dtype=np.int32)
    examples = {"image": images, "label": labels}
    data = Data(train=examples, evaluation=examples, num_classes=10, prefix="test")
    built = experiment.RECIPE.build(config, data)
    numbers = jnp.asarray(seeds, jnp.int32)
    begun = state.init(built, numbers, mesh.make(config))
    arguments = (numbers, jax.device_put(examples), seeds_epoch_indices(seeds, 0, size, config.batch_size), np.int32(0))
    train = jax.jit(step.make_train(built, 1), donate_argnums=0).lower(begun, *arguments).compile()

    def call() -> None:
        nonlocal begun
        begun, metrics = train(begun, *arguments)
        jax.block_until_ready(metrics)

    for _ in range(warm_up):
        call()
    return call


def measure(options: argparse.Namespace, failed: MutableMapping[str, str]) -> dict[str, Summary]:
    """Times of all contestants, but for those that `failed`.

    Raises:
      LostDeviceError: one of them has ended the device.
    """
    calls = {}
    for name, fields in contestants().items():
        print(f"compiling {name}", flush=True)
        with caught(failed, name):
            calls[name] = training(fields, range(options.seeds), options.steps, warm_up=2)
    print(f"timing for {options.seconds:g} s", flush=True)
    return interleave(calls, Budget(options.seconds, fewest=5, most=200), failed=failed)


def main(arguments: Sequence[str]) -> int:
    """Runs the command; 1 if a contestant failed."""
    parser = record.parser(_MODULE, __doc__)
    parser.add_argument("--seeds", type=int, default=1, help="networks trained side by side")
    parser.add_argument("--steps", type=int, default=100, help="steps a call")
    parser.add_argument("--seconds", type=float, default=60.0, help="of timed calls, all together")
    options = record.parse(parser, arguments, harmless=("seeds",))
    environment = record.begin(_MODULE, arguments, options.results)
    METHODS["hard by lax.top_k"] = PruningMethod(_hard_by_lax)

    suffix = "" if options.seeds == 1 else f"-{options.seeds}seeds"
    failed: dict[str, str] = {}
    try:
        times = measure(options, failed)
    except LostDeviceError as error:
        return training_steps.lost(options.results, "steps" + suffix, environment, error)
    rows = {
        name: {key: value / options.steps if key.endswith("_ms") else value for key, value in time._asdict().items()}
        for name, time in times.items()
    }
    medians = {name: row["median_ms"] for name, row in rows.items()}
    targets = [
        training_steps.target(f"{name} over {other}", limit, training_steps.ratio(medians, name, other))
        for (name, other), limit in LIMITS.items()
    ]
    document = {"seeds": options.seeds, "steps": rows, "failed": failed, "targets": targets}
    path = training_steps.write(options.results, "steps" + suffix, environment, document)

    print(f"{'':24} median ms a step [quartiles]   over dense")
    for name, row in rows.items():
        spread = f"[{row['lower_quartile_ms']:.3f}, {row['upper_quartile_ms']:.3f}]"
        over = training_steps.number(training_steps.ratio(medians, name, "dense"), ".2f")
        print(f"{name:24} {row['median_ms']:8.3f} {spread:18} {over:>8}")
    for line in training_steps.outcome(document, ".2f"):
        print(line)
    print(f"results are in {path}")
    return int(bool(failed))


if __name__ == "__main__":
    console.run(main)
