"""How the strength of a relaxation changes over training.

config.FIELD.schedule   constant (at start), or geometric (from start to end, step by step)
            .start, .end   positive

It may take a part of training only, at the end of which the relaxation is none: lam = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import ml_collections

from experiments.core.config import require, require_one_of

LAM_SCHEDULES = ("constant", "geometric")


def validate_lam(lam: ml_collections.ConfigDict, field: str = "lam", schedules: Sequence[str] = LAM_SCHEDULES) -> None:
    """Checks `config.FIELD`; `schedules` are those above, and what an experiment has beside them."""
    require_one_of(f"{field}.schedule", lam.schedule, schedules)
    for name in ("start", "end"):
        require(lam[name] > 0, f"{field}.{name}", lam[name], "positive")


def lam_schedule(lam: ml_collections.ConfigDict, hard_after: float = 1.0) -> Callable[[jax.Array], jax.Array]:
    """`lam(progress)`: `start` throughout, or geometrically from `start` to `end`.

    With `hard_after` < 1, in (0, 1), it comes to its end at that share of training, and is 0 from there on.
    """

    def relaxed(progress: jax.Array) -> jax.Array:
        if lam.schedule == "constant":
            return jnp.full_like(progress, lam.start)
        return lam.start * (lam.end / lam.start) ** progress

    if hard_after == 1:
        return relaxed
    return lambda progress: jnp.where(progress < hard_after, relaxed(jnp.minimum(progress / hard_after, 1.0)), 0.0)
