"""How the density changes over training.

config.density_schedule.name   constant (at config.density), or cubic (from 1 to it)
                       .begin, .end   shares of training between which a cubic one falls
                       .every         steps between two masks, of methods that hold one for a while
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import ml_collections
from etils import epy

from experiments.core.config import is_whole, require, require_one_of

with epy.lazy_imports():  # --help does without them
    import jax
    import jax.numpy as jnp

DENSITY_SCHEDULES = ("constant", "cubic")
CUBIC = {"density_schedule.name": "cubic"}  # fields of the config
# What a method reads whose density may fall.
FALLING = ("density_schedule.name", "density_schedule.begin", "density_schedule.end")
Density: TypeAlias = "Callable[[jax.Array], jax.Array]"  # of progress, from 0 to 1


def linear_density(target: float) -> Density:
    """`density(progress)`: linearly from 1 to `target`."""
    return lambda progress: 1.0 + (target - 1.0) * progress


def cubic_density(target: float, begin: float = 0.0, end: float = 1.0) -> Density:
    """`density(progress)`: 1 until `begin`, then to `target`, ever more slowly, which it has from `end` on.

    The sparsity is `s_f + (s_i - s_f) (1 - (t - t_0) / (n dt))^3` (Zhu and Gupta 2017, eq. 1), with `s_i = 0`.
    """

    def density(progress: jax.Array) -> jax.Array:
        left = 1.0 - jnp.clip((progress - begin) / (end - begin), 0.0, 1.0)
        return target + (1.0 - target) * left**3

    return density


def density_of(config: ml_collections.ConfigDict) -> float | Density:
    """`config.density`, or the schedule that ends there."""
    fields = config.density_schedule
    return config.density if fields.name == "constant" else cubic_density(config.density, fields.begin, fields.end)


def kept(config: ml_collections.ConfigDict, n: int) -> Callable[[jax.Array], jax.Array | int]:
    """`k(progress)`: how many of `n` weights are kept; a number of Python's where it does not change."""
    density, final = density_of(config), num_kept(config.density, n)
    return falling_to(final, density, n) if callable(density) else lambda progress: final


def falling_to(final: int, density: Density, n: int) -> Callable[[jax.Array], jax.Array]:
    """`number(progress)`: of `n` weights those of a density that falls; at the end as many as a constant one gives."""
    # The product is rounded before it is rounded down.
    return lambda progress: jnp.clip(jnp.floor(density(progress) * n * (1 + 4e-7)), final, n)


def num_kept(density: float, size: int) -> int:
    """`k`, rounded down; the tolerance keeps 0.29 * 100 from being 28."""
    return int(density * size + 1e-9)


def cubic_ends(*ends: float) -> dict[str, dict[str, Any]]:
    """Fields of the config, by the name of a candidate."""
    return {f"end{end:g}": CUBIC | {"density_schedule.end": end} for end in ends}


def cubic_setting(config: Mapping[str, Any]) -> list[str]:
    """What tables say of a density that falls; nothing where it does not, or in runs made before there was a choice."""
    fields = config.get("density_schedule", {"name": "constant"})
    return [] if fields["name"] == "constant" else [f"cubic to {100 * fields['end']:g} % of training"]


# What is said in METHODS of a method that follows either schedule, and of one that follows the cubic one alone.
EITHER: dict[str, Any] = {"setting": cubic_setting, "reads": FALLING, "density_schedules": DENSITY_SCHEDULES}
CUBIC_ALONE: dict[str, Any] = {"setting": cubic_setting, "density_schedules": ("cubic",), "fields": CUBIC}


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.density_schedule`."""
    fields = config.density_schedule
    require_one_of("density_schedule.name", fields.name, DENSITY_SCHEDULES)
    require(0 <= fields.begin < 1, "density_schedule.begin", fields.begin, "in [0, 1)")
    allowed = f"in ({fields.begin:g}, 1], after its begin"
    require(fields.begin < fields.end <= 1, "density_schedule.end", fields.end, allowed)
    every = fields.every
    require(is_whole(every) and every > 0, "density_schedule.every", every, "a positive whole number")
