"""Schedules of the density over training.

config.density_schedule.name   constant (at config.density), or cubic (falling from 1 to it)
                       .begin, .end   the shares of training between which a cubic schedule falls
                       .every         the steps between two masks, for methods that hold a mask
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_collections

from experiments.core.config import is_whole, require, require_one_of

DENSITY_SCHEDULES = ("constant", "cubic")
# The fields that a method reads if its density may fall.
FALLING = ("density_schedule.name", "density_schedule.begin", "density_schedule.end")
Density = Callable[[jax.Array], jax.Array]  # a function of progress, from 0 to 1


def linear_density(target: float) -> Density:
    """Returns `density(progress)`, which falls linearly from 1 to `target`."""
    return lambda progress: 1.0 + (target - 1.0) * progress


def cubic_density(target: float, begin: float = 0.0, end: float = 1.0) -> Density:
    """Returns `density(progress)`: 1 until `begin`, then falling ever more slowly to `target`, reached at `end`.

    The sparsity is `s_f + (s_i - s_f) (1 - (t - t_0) / (n dt))^3` (Zhu and Gupta 2017, eq. 1), with `s_i = 0`.
    """

    def density(progress: jax.Array) -> jax.Array:
        left = 1.0 - jnp.clip((progress - begin) / (end - begin), 0.0, 1.0)
        return target + (1.0 - target) * left**3

    return density


def density_of(config: ml_collections.ConfigDict) -> float | Density:
    """Returns `config.density`, or the schedule that ends at it."""
    fields = config.density_schedule
    return config.density if fields.name == "constant" else cubic_density(config.density, fields.begin, fields.end)


def kept(config: ml_collections.ConfigDict, n: int) -> Callable[[jax.Array], jax.Array | int]:
    """Returns `k(progress)`, the number of `n` weights to keep; a Python integer if it is constant."""
    density, final = density_of(config), num_kept(config.density, n)
    return falling_to(final, density, n) if callable(density) else lambda progress: final


def falling_to(final: int, density: Density, n: int) -> Callable[[jax.Array], jax.Array]:
    """Returns `k(progress)` for a density that falls; it ends exactly at `final`."""
    # The factor keeps a rounded product from being rounded down once more.
    return lambda progress: jnp.clip(jnp.floor(density(progress) * n * (1 + 4e-7)), final, n)


def num_kept(density: float, size: int) -> int:
    """Returns `density * size` rounded down; a tolerance keeps 0.29 * 100 from becoming 28."""
    return int(density * size + 1e-9)


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.density_schedule`."""
    fields = config.density_schedule
    require_one_of("density_schedule.name", fields.name, DENSITY_SCHEDULES)
    require(0 <= fields.begin < 1, "density_schedule.begin", fields.begin, "in [0, 1)")
    allowed = f"in ({fields.begin:g}, 1], after its begin"
    require(fields.begin < fields.end <= 1, "density_schedule.end", fields.end, allowed)
    every = fields.every
    require(is_whole(every) and every > 0, "density_schedule.every", every, "a positive whole number")
