"""How the density changes over training."""

from collections.abc import Callable

import jax


def linear_density(target: float) -> Callable[[jax.Array], jax.Array]:
    """`density(progress)`: linearly from 1 to `target`."""
    return lambda progress: 1.0 + (target - 1.0) * progress


def cubic_density(target: float) -> Callable[[jax.Array], jax.Array]:
    """`density(progress)`: from 1 to `target`, ever more slowly (Zhu and Gupta 2017, eq. 1)."""
    return lambda progress: target + (1.0 - target) * (1.0 - progress) ** 3
