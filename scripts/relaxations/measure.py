"""Sections of the benchmarks that compare relaxations: masks and gradients, times and memory, nearest neighbours.

Masks and gradients: rows of 400 standard normal scores, k = 28, and the derivative of a random sum of the mask. The
gradient has references: that of the same sum of a hard mask in the mean over Gaussian noise of the same width, and over
uniform noise, estimated from many samples, each smoothed in the noise of one entry (``noisy``). The quality of a
gradient is how much a hard mask gains by a step along it. ``neighbours`` has the nearest neighbours.
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
from scripts.relaxations.methods import NOISES, RELAXATIONS, Mask, Noise, strength_of

WIDTHS = (0.01, 0.03, 0.1, 0.3, 1.0)
WIDTH = 0.1
"""The width of the tables and the times."""
_ROWS, _SMALL_ROWS = Shape(64, 400, 28), Shape(4, 50, 5)
_REFERENCE_SAMPLES = 1000
_STEP = 1.0  # Euclidean length of the step whose gain is measured
_TIMED = (Shape(64, 400, 28), Shape(1, 10_000, 1000), Shape(1, 1_000_000, 100_000))


def gradients(scale: str) -> Group:
    """Returns the cases of masks and gradients: one a width."""
    small = scale == "small"
    shape, samples = (_SMALL_ROWS, 200) if small else (_ROWS, _REFERENCE_SAMPLES)
    widths = (0.1, 0.3) if small else WIDTHS
    settings = {"rows": shape, "widths": widths, "samples": samples, "step": _STEP, "width": WIDTH}
    cases = [Case(f"width {width:g}", functools.partial(_masks, width, shape, samples), 2.0) for width in widths]
    return Group(settings, cases)


def learning(scale: str) -> Group:
    """Returns the cases of nearest neighbours: one a relaxation."""
    settings = neighbours.SMALL if scale == "small" else neighbours.Settings()
    names = (neighbours.UNTRAINED, *RELAXATIONS)
    cases = [Case(name, functools.partial(neighbours.measure, name, settings), 10.0) for name in names]
    return Group(settings._asdict(), cases)


def times(scale: str) -> Group:
    """Returns the cases of times: one a size."""
    timed, budget = ((_SMALL_ROWS,), Budget(0.5, 3, 20)) if scale == "small" else (_TIMED, Budget(60.0, 3, 200))
    cases = [Case(str(one), functools.partial(_times, one, budget), 6.0) for one in timed]
    return Group({"width": WIDTH, "timed": timed}, cases)


def noisy(x: Array, k: int, width: Array, samples: int, noise: Noise) -> Array:
    """Returns the mean of the hard top-k mask of ``x [..., n]`` over noise of a width, differentiable.

    An entry is selected if, with its noise, it exceeds the k-th largest of the others with theirs. Given the others,
    this event has a probability; the derivative of its mean is that of the mask.
    """

    def one(total: Array, key: Array) -> tuple[Array, None]:
        y = x + width * noise.draw(key, x.shape, x.dtype)
        largest = lax.top_k(y, k + 1)[0]
        bar = jnp.where(y >= largest[..., k - 1 : k], largest[..., k : k + 1], largest[..., k - 1 : k])
        return total + noise.cumulative((x - bar) / width), None

    keys = jax.random.split(jax.random.key(1), samples)
    return lax.scan(jax.checkpoint(one), jnp.zeros_like(x), keys)[0] / samples


def _masks(width: float, shape: Shape, samples: int, contest: Contest) -> Found:
    inputs = draw(shape)
    x, weights = jnp.asarray(inputs.x), jnp.asarray(inputs.weights)
    hard = ops.hard_topk_mask(x, shape.k)
    references = {}
    for name, noise in NOISES.items():
        of_noise = _with_gradient(functools.partial(noisy, samples=samples, noise=noise))
        references[name] = of_noise(x, weights, shape.k, jnp.float32(width))[1]

    def gain(gradient: Array) -> Array:
        """Returns by row what the weighted sum of a hard mask gains by a step along the gradient."""
        length = jnp.linalg.norm(gradient, axis=-1, keepdims=True)
        moved = x + _STEP * gradient / jnp.where(length > 0, length, 1.0)
        return jnp.sum(weights * (ops.hard_topk_mask(moved, shape.k) - hard), axis=-1)

    def measured(name: str, strength: float) -> dict[str, Any]:
        mask, gradient = _with_gradient(RELAXATIONS[name].mask)(x, weights, shape.k, jnp.float32(strength))
        with jax.enable_x64(True):
            exact = RELAXATIONS[name].mask(jnp.asarray(inputs.x, jnp.float64), shape.k, jnp.float64(strength))
            not_zero_float64 = float((exact != 0).sum(axis=-1).mean())
        norm = jnp.linalg.norm(gradient, axis=-1)
        of_noises: dict[str, Any] = {}
        for noise, reference in references.items():
            wanted = jnp.linalg.norm(reference, axis=-1)
            product = jnp.maximum(norm * wanted, jnp.finfo(x.dtype).tiny)
            cosine = jnp.sum(gradient * reference, axis=-1) / product
            # Bounded noise may change no entry of a row: there is nothing to compare with.
            there = (wanted > 0).tolist()
            of_noises |= {
                f"norm_{noise}": _interval_where(there, norm / wanted),
                f"cosine_{noise}": _interval_where(there, cosine),
                f"gain_of_{noise}": interval(gain(reference).tolist()),
            }
        return {
            "relaxation": name,
            "width": width,
            "strength": strength,
            "sum_error": float(jnp.max(jnp.abs(mask.sum(axis=-1) - shape.k))),
            "largest": float(mask.max()),
            "not_zero": float((mask != 0).sum(axis=-1).mean()),
            "not_zero_float64": not_zero_float64,
            "distance": float(jnp.abs(mask - hard).sum(axis=-1).mean() / (2 * shape.k)),
            "gradient_not_zero": float((gradient != 0).sum(axis=-1).mean()),
            "gain": interval(gain(gradient).tolist()),
            **of_noises,
        }

    rows, left_out = [], {}
    for name in RELAXATIONS:
        strength = strength_of(name, shape.n, shape.k, width)
        if strength is None:
            left_out[f"{name}, width {width:g}"] = "no strength has this width"
        elif row := contest.attempt(name, functools.partial(measured, name, strength)):
            print(f"  {name}: gain {row['gain']['mean']:.2f}", flush=True)
            rows.append(row)
    return {"masks": rows, "left_out": left_out, "failed": contest.failed}


def _interval_where(there: list[bool], values: Array) -> dict[str, Any]:
    return interval([value if one else None for value, one in zip(values.tolist(), there, strict=True)])


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
        if shape.n > relaxation.longest:
            left_out[f"{name}, {shape}"] = (
                f"a row of more than {relaxation.longest:,} entries takes it a minute or more"
            )
            continue
        strength = strength_of(name, _ROWS.n, _ROWS.k, WIDTH)
        assert strength is not None
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
