"""Schedules of the density over training.

config.density_schedule.name   constant (at config.density), or cubic (from 1 to it)
                       .begin, .end   shares of training between which a cubic one falls
                       .every         steps between two masks, of methods that hold one for a while
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_collections

from experiments.core.config import is_whole, require, require_one_of

DENSITY_SCHEDULES = ("constant", "cubic")
# Read by a method whose density may fall.
FALLING = ("density_schedule.name", "density_schedule.begin", "density_schedule.end")
Density = Callable[[jax.Array], jax.Array]  # of progress, from 0 to 1


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
    """Returns `config.density`, or the schedule that ends there."""
    fields = config.density_schedule
    return config.density if fields.name == "constant" else cubic_density(config.density, fields.begin, fields.end)


def kept(config: ml_collections.ConfigDict, n: int) -> Callable[[jax.Array], jax.Array | int]:
    """Returns `k(progress)`, how many of `n` weights are kept; a Python integer where it does not change."""
    density, final = density_of(config), num_kept(config.density, n)
    return falling_to(final, density, n) if callable(density) else lambda progress: final


def falling_to(final: int, density: Density, n: int) -> Callable[[jax.Array], jax.Array]:
    """Returns `number(progress)`, by a density that falls; it ends at as many as a constant density gives."""
    # The product is rounded before it is rounded down.
    return lambda progress: jnp.clip(jnp.floor(density(progress) * n * (1 + 4e-7)), final, n)


def num_kept(density: float, size: int) -> int:
    """`k`, rounded down; the tolerance keeps 0.29 * 100 from being 28."""
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
