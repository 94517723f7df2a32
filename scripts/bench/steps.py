"""The section ``steps``: training steps of the MLP of ``configs/mnist_pruning.py``, on random images.

The learning rate is next to nothing, so that all methods stay at the weights where they start.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from configs.mnist_pruning import get_config
from experiments.core.input.dataset import Data
from experiments.core.input.stream import epoch_indices
from experiments.core.training.step import Program, make_train
from experiments.mnist_pruning import experiment
from experiments.mnist_pruning.methods import METHODS
from experiments.mnist_pruning.methods.method import Method, PruningMethod, by_number
from scripts.bench.process import Case, Found, Group
from scripts.bench.timing import Budget, Contest

_BY_LAX = "hard by lax.top_k"
_SCALES = {"small": (0.5, 2), "cpu": (60.0, 100), "device": (20.0, 100)}


def group(scale: str) -> Group:
    """One case: all methods take turns."""
    seconds, steps = _SCALES[scale]
    return Group({"seconds": seconds, "steps": steps}, [Case("steps", functools.partial(measure, seconds, steps), 1.5)])


def measure(seconds: float, steps: int, contest: Contest) -> Found:
    """Times of a step with every method, and their ratios to a dense step and to one with a hard top-k by JAX."""
    METHODS[_BY_LAX] = PruningMethod(_hard_by_lax)
    prepared = {
        name: contest.attempt(name, functools.partial(training, fields, steps)) for name, fields in methods().items()
    }
    calls = {name: call for name, call in prepared.items() if call is not None}
    times = contest.time(calls, Budget(seconds, fewest=5, most=200))
    rows: dict[str, dict[str, Any]] = {}
    for name, time in times.items():
        rows[name] = {key: value / steps if key.endswith("_ms") else value for key, value in time._asdict().items()}
        others = {other: times[other].median_ms for other in ("dense", _BY_LAX) if other in times}
        rows[name]["ratio_to"] = {other: time.median_ms / median for other, median in others.items()}
    return {"seeds": 1, "steps": rows, "failed": contest.failed}


def methods() -> dict[str, dict[str, Any]]:
    """Fields of the config, by contestant."""
    relaxed = {"method": "relaxed", "debias": True}
    return {
        **{name: {"method": name} for name in ("dense", _BY_LAX, "hard")},
        **{
            f"relaxed p={label} lam={lam:g}".replace("0.0001", "1e-4"): relaxed | {"p": p, "lam.start": lam}
            for label, p in (("2", 2.0), ("4/3", 4 / 3))
            for lam in (1.0, 0.1, 1e-2, 1e-4)
        },
    }


def _hard_by_lax(config: Any, total_steps: int) -> Method:
    """Hard top-k in magnitude as one writes it with what JAX has."""
    del total_steps

    def keep(w: jax.Array, k: int) -> jax.Array:
        _, kept = lax.top_k(jnp.abs(w), k)
        return w * jnp.zeros_like(w).at[kept].set(1.0)

    return by_number(keep, config)


def training(fields: dict[str, Any], steps: int) -> Callable[[], None]:
    """A function that goes on training by ``steps`` steps, after two calls of it."""
    config = get_config()
    config.update_from_flattened_dict(fields | {"seeds": (0,), "optimizer.learning_rate": 1e-12})
    rng = np.random.default_rng(0)
    size = steps * config.batch_size
    images = rng.integers(0, 256, (size, 28, 28, 1), dtype=np.uint8)
    examples = {"image": images, "label": rng.integers(0, 10, size, dtype=np.int32)}
    data = Data(train=examples, evaluation=examples, num_classes=10, prefix="test")
    program, seeds = Program(experiment.RECIPE, config, data), jnp.zeros(1, jnp.int32)
    begun = program.begin(seeds)
    arguments = (seeds, jax.device_put(examples), epoch_indices(0, 0, size, config.batch_size)[None], np.int32(0))
    train = jax.jit(make_train(program.experiment, 1), donate_argnums=0).lower(begun, *arguments).compile()

    def call() -> None:
        nonlocal begun
        begun, metrics = train(begun, *arguments)
        jax.block_until_ready(metrics)

    call()
    call()
    return call
