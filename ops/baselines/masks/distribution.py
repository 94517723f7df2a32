"""Masks ``F((x_i - tau) / temperature)``, with a distribution function ``F`` and ``tau`` such that they sum to ``k``.

Each baseline of this kind has its own ``F`` and method to find ``tau``. The derivative follows from the implicit
function theorem for every method: with ``t_i = (x_i - tau) / temperature`` and ``f = F'``,

    d tau = (sum_i f(t_i) (d x_i - t_i d temperature) - temperature d k) / sum_i f(t_i).
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ...interface.arguments import INSIDE_N, POSITIVE, Axis
from ...scalar.choice import choose
from ...scalar.twofloat import TwoFloat
from .shared import finite_above, mask_rows

Solve = Callable[[Array, Array, Array], TwoFloat]

# Beyond this many temperatures every tail is 0, in double precision too.
_FAR = 1e3


@dataclasses.dataclass(frozen=True)
class Distribution:
    """A distribution symmetric about 0: its distribution function and its density."""

    cumulative: Callable[[Array], Array]
    density: Callable[[Array], Array]


def position(x: Array, tau: TwoFloat, temperature: Array) -> Array:
    """Returns ``t = (x - tau) / temperature``, kept finite so that derivatives far from ``tau`` are 0 and not NaN."""
    away = choose(x > -jnp.inf, (x - tau.hi) - tau.lo, 0.0)
    return jnp.clip(away, -_FAR * temperature, _FAR * temperature) / temperature


def selection(x: Array, tau: TwoFloat, temperature: Array, distribution: Distribution) -> Array:
    """Returns ``F(t)``, and 0 where an entry is ``-inf``."""
    return choose(x > -jnp.inf, distribution.cumulative(position(x, tau, temperature)), 0.0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def threshold(x: Array, k: Array, temperature: Array, distribution: Distribution, solve: Solve) -> TwoFloat:
    """Returns ``tau`` of each row by ``solve(x, k, temperature)``; ``lo`` carries the derivative."""
    return solve(x, k, temperature)


@threshold.defjvp
def _threshold_jvp(distribution, solve, primals, tangents):
    x, k, temperature = primals
    x_dot, k_dot, temperature_dot = tangents
    tau = threshold(x, k, temperature, distribution, solve)
    t = position(x, tau, temperature)
    density = choose(x > -jnp.inf, distribution.density(t), 0.0)
    total = jnp.sum(density, axis=-1, keepdims=True)
    moved = jnp.sum(density * (x_dot - t * temperature_dot), axis=-1, keepdims=True) - temperature * k_dot
    # If all densities underflow, the mask is hard, and constant in floats.
    some = total > 0
    tau_dot = choose(some, moved / choose(some, total, 1.0), 0.0)
    return tau, TwoFloat(jnp.zeros_like(tau.hi), tau_dot)


def distribution_mask(
    x: ArrayLike, k: ArrayLike, temperature: ArrayLike, axis: Axis, distribution: Distribution, solve: Solve
) -> Array:
    """Returns the mask along ``axis``; ``k`` and ``temperature`` are one number or one value per row.

    If fewer than ``k`` entries are above ``-inf``, those get 1.
    """
    per_row = {"k": (k, INSIDE_N), "temperature": (temperature, POSITIVE)}
    return mask_rows(_mask, x, axis, per_row, distribution=distribution, solve=solve)


def _mask(x: Array, k: Array, temperature: Array, *, distribution: Distribution, solve: Solve) -> Array:
    x = finite_above(x)
    available = jnp.sum(x > -jnp.inf, axis=-1, keepdims=True, dtype=x.dtype)
    tau = threshold(x, choose(k > available, available, k), temperature, distribution, solve)
    return selection(x, tau, temperature, distribution)
