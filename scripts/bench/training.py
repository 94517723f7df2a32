"""Training steps that differ in one part, beside that part by itself: what benchmarks of losses and routers share.

The overhead of a part is given twice: as the ratio of the medians of whole steps, which the noise of the machine can
exceed many times, and as what the part by itself takes longer than the reference, in units of a step.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.core.training.experiment import Experiment
from scripts.bench import record
from scripts.bench.timing import Summary

Call = Callable[[], None]


def random_images(batch_size: int, size: int, num_classes: int) -> dict[str, np.ndarray]:
    """A batch of noise."""
    rng = np.random.default_rng(0)
    return {
        "image": rng.integers(0, 256, (batch_size, size, size, 3), dtype=np.uint8),
        "label": rng.integers(0, num_classes, batch_size, dtype=np.int32),
    }


def steps(experiments: Mapping[str, Experiment], examples: Mapping[str, np.ndarray]) -> dict[str, Call]:
    """For every experiment a function that takes one training step, compiled; all from the same parameters."""
    batch = jax.device_put(dict(examples))
    calls: dict[str, Call] = {}
    start: Any = None
    for name, experiment in experiments.items():
        if start is None:
            params = jax.jit(experiment.init)(jax.random.key(0))
            start = params, experiment.optimizer.init(params)
        compiled = jax.jit(functools.partial(_step, experiment)).lower(start, batch).compile()
        calls[name] = functools.partial(finished, compiled, start, batch)
        calls[name]()
        print(f"compiled a step: {name}", flush=True)
    return calls


def _step(experiment: Experiment, state: Any, batch: Any) -> Any:
    params, opt_state = state
    images = experiment.augment(jax.random.key(0), batch["image"]) if experiment.augment else batch["image"]
    gradient, _ = jax.grad(experiment.loss, has_aux=True)(
        params, batch | {"image": images}, jax.random.key(0), jnp.float32(0)
    )
    with jax.numpy_dtype_promotion("standard"):
        updates, opt_state = experiment.optimizer.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def finished(function: Callable[..., Any], *arguments: Any) -> None:
    """Calls, and waits for what comes of it."""
    jax.block_until_ready(function(*arguments))


def overheads(
    times: Mapping[str, Summary], alone: Mapping[str, Summary], reference: str, parts: int = 1
) -> dict[str, dict[str, Any]]:
    """By contestant, its times and its overhead over `reference`; a step has so many `parts`."""
    step = times[reference].median_ms
    return {
        name: {
            "step": time._asdict(),
            "alone": alone[name]._asdict(),
            "ratio_of_steps": time.median_ms / step,
            "one_plus_extra_over_step": 1.0 + parts * (alone[name].median_ms - alone[reference].median_ms) / step,
        }
        for name, time in times.items()
    }


def target(what: str, limit: float, measured: float) -> dict[str, Any]:
    """What is to be reached, and whether it was."""
    return {"target": what, "limit": limit, "measured": measured, "status": "PASS" if measured <= limit else "MISS"}


def report(results: Path, name: str, environment: dict[str, Any], document: dict[str, Any], rows: str) -> None:
    """Writes `<results>/<name>-<hardware>.json`, and prints the contestants in `document[rows]` and the targets."""
    path = record.write(results, name + "-{hardware}", environment, document)
    print(f"{'':32} step, ms [quartiles]            ratio   alone, ms   1 + extra / step")
    for contestant, row in document[rows].items():
        step, single = row["step"], row["alone"]["median_ms"]
        spread = f"[{step['lower_quartile_ms']:.1f}, {step['upper_quartile_ms']:.1f}]"
        ratios = f"{row['ratio_of_steps']:6.3f} {single:11.3f} {row['one_plus_extra_over_step']:18.5f}"
        print(f"{contestant:32} {step['median_ms']:9.1f} {spread:20} {ratios}")
    for entry in document["targets"]:
        print(f"{entry['status']}  {entry['measured']:.5f} (limit {entry['limit']:g})  {entry['target']}")
    print(f"results are in {path}")
