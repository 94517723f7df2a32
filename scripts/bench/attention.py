"""The section ``attention``: a layer that reads selected keys, forward and backward, beside one that reads all."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from experiments.sparse_attention.model import Mode, SparseAttention
from experiments.sparse_attention.selectors import SELECTORS
from scripts.bench.process import Case, Found, Group
from scripts.bench.timing import Budget, Call, Contest

K, SPARE, WIDTH, HEADS, INDEX_WIDTH = 16, 16, 256, 8, 16
NAMES = ("dense", "frozen", "straight_through", "sigmoid", "kl")
_SCALES = {"small": (0.5, (64,)), "cpu": (20.0, (512, 1024, 2048)), "device": (10.0, (1024, 2048, 4096))}


def group(scale: str) -> Group:
    """One case a length."""
    seconds, lengths = _SCALES[scale]
    settings = {"seconds": seconds, "k": K, "spare": SPARE, "width": WIDTH, "heads": HEADS, "batch": 1}
    return Group(settings, [Case(str(n), functools.partial(measure, n, seconds), 1.0) for n in lengths])


def measure(length: int, seconds: float, contest: Contest) -> Found:
    """Times of a layer with each selector, also over that of the dense one, and its bytes beside the arguments."""
    x = jax.random.normal(jax.random.key(0), (1, length, WIDTH))
    made = {name: contest.attempt(name, functools.partial(_compiled, name, x)) for name in NAMES}
    prepared = {name: program for name, program in made.items() if program is not None}
    calls = {name: Call(functools.partial(compiled, *arguments)) for name, (compiled, arguments) in prepared.items()}
    times = contest.time(calls, Budget(seconds, fewest=3, most=100))
    rows: dict[str, dict[str, Any]] = {}
    for name, time in times.items():
        memory = prepared[name][0].memory_analysis().temp_size_in_bytes
        rows[name] = time._asdict() | {"temporary_bytes": memory}
        if "dense" in times:
            rows[name]["ratio_to_dense"] = time.median_ms / times["dense"].median_ms
    return {"attention": {str(length): rows}, "failed": contest.failed}


def _compiled(name: str, x: jax.Array) -> tuple[Any, Any]:
    layer = SparseAttention(HEADS, INDEX_WIDTH, SELECTORS[name], K, K + SPARE)
    mode = Mode(True, jnp.float32(0.3), jnp.float32(0.9))
    params = layer.init(jax.random.key(1), x, mode)

    def loss(params: Any, x: jax.Array) -> jax.Array:
        output: Any = layer.apply(params, x, mode)
        return jnp.square(output[0]).mean() + output[1]

    return jax.jit(jax.grad(loss, argnums=(0, 1))).lower(params, x).compile(), (params, x)
