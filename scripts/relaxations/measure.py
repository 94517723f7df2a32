"""The section ``relaxations`` of the benchmarks: masks and gradients, times and memory, nearest neighbours.

Masks and gradients: rows of 400 standard normal scores, k = 28, and the derivative of a random sum of the mask. The
gradient has a reference: that of the same sum of a hard mask in the mean over Gaussian noise of the same width,
estimated from many samples, each smoothed in the noise of one entry (``noisy``). The quality of a gradient is how much
a hard mask gains by a step along it. ``neighbours`` has the nearest neighbours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

import ops
from experiments.core.record.summary import interval
from scripts.bench.contestants import BOTH, FORWARD, Shape, draw, weighted_sum
from scripts.bench.process import Case, Found, Group
from scripts.bench.timing import Budget, Call, Contest
from scripts.relaxations import neighbours
from scripts.relaxations.methods import RELAXATIONS, Mask, noise_of, strength_of

WIDTHS = (0.01, 0.03, 0.1, 0.3, 1.0)
WIDTH = 0.1
"""The width of the tables and the times."""
_ROWS = Shape(64, 400, 28)
_REFERENCE_SAMPLES = 1000
_STEP = 1.0  # Euclidean length of the step whose gain is measured
_TIMED = (Shape(64, 400, 28), Shape(1, 10_000, 1000), Shape(1, 1_000_000, 100_000))
_MOST_PAIRS = 10**9  # the largest k n of a row for masks that take k n operations


def group(scale: str) -> Group:
    """Returns the cases: masks and gradients by width, nearest neighbours by relaxation, and times by size."""
    small = scale == "small"
    shape, samples = (Shape(4, 50, 5), 200) if small else (_ROWS, _REFERENCE_SAMPLES)
    widths = (0.1, 0.3) if small else WIDTHS
    timed, budget = ((shape,), Budget(0.5, 3, 20)) if small else (_TIMED, Budget(60.0, 3, 200))
    learning = neighbours.SMALL if small else neighbours.Settings()
    settings: dict[str, Any] = {
        "rows": shape,
        "widths": widths,
        "samples": samples,
        "step": _STEP,
        "width": WIDTH,
        "timed": timed,
    }
    settings["neighbours"] = learning._asdict()
    cases = []
    for width in widths:
        measure = functools.partial(_masks, width, shape, samples)
        cases.append(Case(f"masks and gradients, width {width:g}", measure, 2.0))
    for name in (neighbours.UNTRAINED, *RELAXATIONS):
        measure = functools.partial(neighbours.measure, name, learning)
        cases.append(Case(f"nearest neighbours, {name}", measure, 10.0))
    cases += [Case(f"times, {one}", functools.partial(_times, one, budget), 6.0) for one in timed]
    return Group(settings, cases)


def noisy(x: Array, k: int, sigma: Array, samples: int) -> Array:
    """Returns the mean of the hard top-k mask of ``x [..., n]`` over Gaussian noise, differentiable.

    An entry is selected if, with its noise, it exceeds the k-th largest of the others with theirs. Given the others,
    this event has a probability; the derivative of its mean is that of the mask.
    """

    def one(total: Array, key: Array) -> tuple[Array, None]:
        y = x + sigma * jax.random.normal(key, x.shape, x.dtype)
        largest = lax.top_k(y, k + 1)[0]
        bar = jnp.where(y >= largest[..., k - 1 : k], largest[..., k : k + 1], largest[..., k - 1 : k])
        return total + jax.scipy.stats.norm.cdf((x - bar) / sigma), None

    keys = jax.random.split(jax.random.key(1), samples)
    return lax.scan(jax.checkpoint(one), jnp.zeros_like(x), keys)[0] / samples


def _masks(width: float, shape: Shape, samples: int, contest: Contest) -> Found:
    inputs = draw(shape)
    x, weights = jnp.asarray(inputs.x), jnp.asarray(inputs.weights)
    hard = ops.hard_topk_mask(x, shape.k)
    of_noise = _with_gradient(lambda x, k, sigma: noisy(x, k, sigma, samples))
    _, reference = of_noise(x, weights, shape.k, jnp.float32(noise_of(width)))

    def gain(gradient: Array) -> Array:
        """Returns by row what the weighted sum of a hard mask gains by a step along the gradient."""
        length = jnp.linalg.norm(gradient, axis=-1, keepdims=True)
        moved = x + _STEP * gradient / jnp.where(length > 0, length, 1.0)
        return jnp.sum(weights * (ops.hard_topk_mask(moved, shape.k) - hard), axis=-1)

    def measured(name: str) -> dict[str, Any]:
        strength = strength_of(name, shape.n, shape.k, width)
        mask, gradient = _with_gradient(RELAXATIONS[name].mask)(x, weights, shape.k, jnp.float32(strength))
        norms, wanted = (jnp.linalg.norm(one, axis=-1) for one in (gradient, reference))
        cosine = jnp.sum(gradient * reference, axis=-1) / jnp.maximum(norms * wanted, jnp.finfo(x.dtype).tiny)
        return {
            "relaxation": name,
            "width": width,
            "strength": strength,
            "sum_error": float(jnp.max(jnp.abs(mask.sum(axis=-1) - shape.k))),
            "largest": float(mask.max()),
            "not_zero": float((mask != 0).sum(axis=-1).mean()),
            "distance": float(jnp.abs(mask - hard).sum(axis=-1).mean() / (2 * shape.k)),
            "gradient_not_zero": float((gradient != 0).sum(axis=-1).mean()),
            "norm": interval((norms / wanted).tolist()),
            "cosine": interval(cosine.tolist()),
            "gain": interval(gain(gradient).tolist()),
            "gain_of_reference": interval(gain(reference).tolist()),
        }

    rows = []
    for name in RELAXATIONS:
        if row := contest.attempt(name, functools.partial(measured, name)):
            print(f"  {name}: cosine {row['cosine']['mean']:.2f}", flush=True)
            rows.append(row)
    return {"masks": rows, "failed": contest.failed}


def _at(mask: Mask, k: int, strength: Array, x: Array) -> Array:
    return mask(x, k, strength)


def _with_gradient(mask: Mask) -> Callable[..., tuple[Array, Array]]:
    @functools.partial(jax.jit, static_argnums=2)
    def both(x: Array, weights: Array, k: int, strength: Array) -> tuple[Array, Array]:
        found, pull = jax.vjp(lambda x: mask(x, k, strength), x)
        return found, pull(weights)[0]

    return both


def _times(shape: Shape, budget: Budget, contest: Contest) -> Found:
    """Times each mask and its value with gradient; returns quartiles, and the temporary memory of the programs."""
    inputs = draw(shape)
    x, weights = jnp.asarray(inputs.x), jnp.asarray(inputs.weights)
    calls, memory, left_out = {}, {}, {}
    for name, relaxation in RELAXATIONS.items():
        if relaxation.all_pairs and shape.k * shape.n > _MOST_PAIRS:
            left_out[f"{name}, {shape}"] = f"k n = {shape.k * shape.n:.0e} operations, the limit is {_MOST_PAIRS:.0e}"
            continue
        strength = strength_of(name, _ROWS.n, _ROWS.k, WIDTH)
        apply = functools.partial(_at, relaxation.mask, shape.k, jnp.float32(strength))
        programs = {
            FORWARD: (jax.jit(apply), (x,)),
            BOTH: (jax.jit(jax.value_and_grad(functools.partial(weighted_sum, apply))), (x, weights)),
        }
        for mode, (program, arguments) in programs.items():
            key = f"{name} {mode}"
            compiled = contest.attempt(key, lambda: program.lower(*arguments).compile())  # noqa: B023
            if compiled is None:
                continue
            calls[key] = Call(functools.partial(compiled, *arguments))
            plan = compiled.memory_analysis()
            memory[key] = plan.temp_size_in_bytes / x.nbytes if plan else None
            calls[key]()
    times = contest.time(calls, budget)
    rows = [
        {**shape._asdict(), "what": key, **summary._asdict(), "memory": memory[key]} for key, summary in times.items()
    ]
    return {"times": rows, "left_out": left_out, "failed": contest.failed}
