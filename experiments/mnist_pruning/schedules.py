"""How the strength of the relaxation and the density change over training."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_collections

from experiments.core.config import require, require_one_of

LAM_SCHEDULES = ("constant", "geometric")


def validate_lam(lam: ml_collections.ConfigDict) -> None:
    """Checks `config.lam`."""
    require_one_of("lam.schedule", lam.schedule, LAM_SCHEDULES)
    for field in ("start", "end"):
        require(lam[field] > 0, f"lam.{field}", lam[field], "positive")


def lam_schedule(lam: ml_collections.ConfigDict) -> Callable[[jax.Array], jax.Array]:
    """`lam(progress)`: `start` throughout, or geometrically from `start` to `end`."""
    if lam.schedule == "constant":
        return lambda progress: jnp.full_like(progress, lam.start)
    return lambda progress: lam.start * (lam.end / lam.start) ** progress


def linear_density(target: float) -> Callable[[jax.Array], jax.Array]:
    """`density(progress)`: linearly from 1 to `target`."""
    return lambda progress: 1.0 + (target - 1.0) * progress


def cubic_density(target: float) -> Callable[[jax.Array], jax.Array]:
    """`density(progress)`: from 1 to `target`, ever more slowly (Zhu and Gupta 2017, eq. 1)."""
    return lambda progress: target + (1.0 - target) * (1.0 - progress) ** 3
