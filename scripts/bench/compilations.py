"""Whether another k or another lam costs a compilation."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ops import hard_topk_mask, topk_mag, topk_mask

_EVENT = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def counting_compilations() -> Iterator[list[str]]:
    """Gives a list that grows by one entry for each executable that is compiled in the meantime."""
    seen: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs, kwargs
        if event == _EVENT:
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def new_compilations(n: int = 1000) -> dict[str, int]:
    """Executables compiled as ``k`` and ``lam`` change, after a first call, per operator and way of calling it."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal((4, n), dtype=np.float32))

    counts = {}
    for operator in (topk_mask, topk_mag):
        for way, call in _ways(operator, x).items():
            counts[f"{operator.__name__}, {way}"] = _count(call)
    counts["hard_topk_mask, called"] = _count(lambda k, lam: hard_topk_mask(x, k))
    return counts


def _ways(operator: Callable[..., Array], x: Array) -> dict[str, Callable[[Any, Any], Any]]:
    def value(x: Array, k: Any, lam: Any) -> Array:
        return jnp.sum(operator(x, k, lam=lam) * x)

    gradient = jax.grad(value)
    compiled = jax.jit(gradient)
    return {
        "called": lambda k, lam: operator(x, k, lam=lam),
        "differentiated": lambda k, lam: gradient(x, k, lam),
        "inside jit": lambda k, lam: compiled(x, k, lam),
    }


def _count(call: Callable[[Any, Any], Any]) -> int:
    jax.block_until_ready(call(10, 0.5))
    with counting_compilations() as seen:
        for k, lam in ((11, 0.25), (100, 1e-3), (1, 4.0)):
            jax.block_until_ready(call(k, lam))
    return len(seen)
