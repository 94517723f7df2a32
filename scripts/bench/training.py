"""Training steps that differ in one part, beside that part by itself: what benchmarks of losses and routers share.

The overhead of a part is given twice: as the ratio of the medians of whole steps, which the noise of the machine can
exceed many times, and as what the part by itself takes longer than the reference, in units of a step.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.core.training.experiment import Experiment
from scripts.bench import record
from scripts.bench.failure import LostDeviceError, caught
from scripts.bench.timing import Call, Summary


def random_images(batch_size: int, size: int, num_classes: int) -> dict[str, np.ndarray]:
    """A batch of noise."""
    rng = np.random.default_rng(0)
    return {
        "image": rng.integers(0, 256, (batch_size, size, size, 3), dtype=np.uint8),
        "label": rng.integers(0, num_classes, batch_size, dtype=np.int32),
    }


def steps(
    experiments: Mapping[str, Experiment], examples: Mapping[str, np.ndarray], failed: MutableMapping[str, str]
) -> dict[str, Callable[[], Any]]:
    """For every experiment a function that takes one training step, compiled; all from the same parameters.

    Those that cannot are in `failed`, with the reason.
    """
    batch = jax.device_put(dict(examples))
    calls: dict[str, Callable[[], Any]] = {}
    start: Any = None
    for name, experiment in experiments.items():
        if start is None:
            params = jax.jit(experiment.init)(jax.random.key(0))
            start = params, experiment.optimizer.init(params)
        with caught(failed, name):
            compiled = jax.jit(functools.partial(_step, experiment)).lower(start, batch).compile()
            calls[name] = called(compiled, start, batch)
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


def called(function: Callable[..., Any], *arguments: Any) -> Call:
    """The call, after a first one."""
    call = Call(functools.partial(function, *arguments), jax.block_until_ready)
    call()
    return call


def overheads(
    times: Mapping[str, Summary], alone: Mapping[str, Summary], reference: str, parts: int = 1
) -> dict[str, dict[str, Any]]:
    """By contestant, its times and its overhead over `reference`; a step has so many `parts`.

    Empty where the reference failed; otherwise without those that did, in a step or alone.
    """
    if not (reference in times and reference in alone):
        return {}
    step = times[reference].median_ms
    return {
        name: {
            "step": time._asdict(),
            "alone": alone[name]._asdict(),
            "ratio_of_steps": time.median_ms / step,
            "one_plus_extra_over_step": 1.0 + parts * (alone[name].median_ms - alone[reference].median_ms) / step,
        }
        for name, time in times.items()
        if name in alone
    }


def ratio(medians: Mapping[str, float], name: str, other: str) -> float | None:
    """Of two medians, None where one is not there."""
    return medians[name] / medians[other] if name in medians and other in medians else None


def target(what: str, limit: float, measured: float | None) -> dict[str, Any]:
    """What is to be reached, and whether it was; None: it could not be measured."""
    status = "not measured" if measured is None else "PASS" if measured <= limit else "MISS"
    return {"target": what, "limit": limit, "measured": measured, "status": status}


def number(value: float | None, form: str) -> str:
    """As text."""
    return "-" if value is None else format(value, form)


def write(results: Path, name: str, environment: Mapping[str, Any], document: Mapping[str, Any]) -> Path:
    """Writes the record, under another name if a contestant `failed`: who reads such records looks for all of them."""
    return record.write(results, "failed-" * bool(document["failed"]) + name, environment, document)


def lost(results: Path, name: str, environment: Mapping[str, Any], error: LostDeviceError) -> int:
    """Writes a record of why nothing was measured, says so, and returns the status to end with."""
    path = write(results, name, environment, {"failed": {str(error.name): error.reason}, "targets": []})
    print(f"error: {error}: nothing else is measured, see {path} (--again tries anew)", file=sys.stderr)
    return 1


def outcome(document: Mapping[str, Any], form: str) -> Iterator[str]:
    """Who failed, and the targets, line by line."""
    for name, reason in document["failed"].items():
        yield f"failed: {name}: {reason}"
    for entry in document["targets"]:
        yield f"{entry['status']}  {number(entry['measured'], form)} (limit {entry['limit']:g})  {entry['target']}"


def report(results: Path, name: str, environment: Mapping[str, Any], document: Mapping[str, Any], rows: str) -> None:
    """Writes the section `name`, and prints the contestants in `document[rows]` and the targets."""
    path = write(results, name, environment, document)
    print(f"{'':32} step, ms [quartiles]            ratio   alone, ms   1 + extra / step")
    for contestant, row in document[rows].items():
        step, single = row["step"], row["alone"]["median_ms"]
        spread = f"[{step['lower_quartile_ms']:.1f}, {step['upper_quartile_ms']:.1f}]"
        ratios = f"{row['ratio_of_steps']:6.3f} {single:11.3f} {row['one_plus_extra_over_step']:18.5f}"
        print(f"{contestant:32} {step['median_ms']:9.1f} {spread:20} {ratios}")
    for line in outcome(document, ".5f"):
        print(line)
    print(f"results are in {path}")
