"""How the strength of a relaxation changes over training.

config.FIELD.schedule   constant (at start), or geometric (from start to end, step by step)
            .start, .end   positive
"""

from __future__ import annotations

from collections.abc import Callable

import ml_collections
from etils import epy

from experiments.core.config import require, require_one_of

with epy.lazy_imports():  # --help does without them
    import jax
    import jax.numpy as jnp

LAM_SCHEDULES = ("constant", "geometric")


def validate_lam(lam: ml_collections.ConfigDict, field: str = "lam") -> None:
    """Checks `config.FIELD`."""
    require_one_of(f"{field}.schedule", lam.schedule, LAM_SCHEDULES)
    for name in ("start", "end"):
        require(lam[name] > 0, f"{field}.{name}", lam[name], "positive")


def lam_schedule(lam: ml_collections.ConfigDict) -> Callable[[jax.Array], jax.Array]:
    """`lam(progress)`: `start` throughout, or geometrically from `start` to `end`."""
    if lam.schedule == "constant":
        return lambda progress: jnp.full_like(progress, lam.start)
    return lambda progress: lam.start * (lam.end / lam.start) ** progress
