"""The relaxed top-k mask, signed or not, of entries in the layout of the solvers."""

import functools
from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from ops.arguments import Vanishing
from ops.equation import Equation, selection
from ops.hard import hard_selection
from ops.threshold import pooled_value


def with_hard_rows(
    hard: Callable[[tuple[Array, ...], Array], tuple[Array, ...]],
    soft: Callable[[Array], tuple[Array, ...]],
    entries: tuple[Array, ...],
    k: Array,
    lam: Array,
    zero: Vanishing,
) -> tuple[Array, ...]:
    """``soft(lam)``, and ``hard(entries, k)`` in the rows where ``lam`` is 0."""
    if zero == "all":
        return hard(entries, k)
    if zero == "none":
        return soft(lam)
    vanishing = lam == 0
    relaxed = soft(jnp.where(vanishing, 1.0, lam))  # any positive number: the derivative must not meet 1 / 0
    exact = lax.cond(jnp.any(vanishing), hard, lambda entries, k: tuple(map(jnp.zeros_like, entries)), entries, k)
    return tuple(jnp.where(vanishing, h, y) for h, y in zip(exact, relaxed, strict=True))


def mask_of(
    entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation, *, zero: Vanishing
) -> tuple[Array, ...]:
    """The mask of entries laid out as ``equation.rows`` says; ``zero`` tells which ``lam`` are 0.

    That of ``phi = abs`` selects by magnitude and bears the signs of the entries.
    """

    def soft(lam: Array) -> tuple[Array, ...]:
        keys = tuple(map(equation.keys, entries))
        gamma = pooled_value(keys, k, lam, equation)
        return tuple(selection(s, gamma, lam, equation) for s in keys)

    hard = functools.partial(hard_selection, rows=equation.rows)
    if not equation.phi.even:
        return with_hard_rows(hard, soft, entries, k, lam, zero)
    selected = with_hard_rows(hard, soft, tuple(map(jnp.abs, entries)), k, lam, zero)
    return tuple(jnp.sign(x) * z for x, z in zip(entries, selected, strict=True))
