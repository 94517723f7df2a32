"""The relaxed top-k mask of entries in the layout of the solvers."""

import functools
from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from ops.arguments import Vanishing
from ops.equation import Equation, selection
from ops.hard import hard_selection
from ops.threshold import threshold


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
    """The mask of entries laid out as ``equation.rows`` says; ``zero`` tells which ``lam`` are 0."""

    def soft(lam: Array) -> tuple[Array, ...]:
        # +inf ties with the largest number there is: more of them than k have to share.
        finite = tuple(jnp.where(s == jnp.inf, jnp.finfo(s.dtype).max, s) for s in entries)
        gamma = threshold(finite, k, lam, equation)
        return tuple(selection(s, gamma, lam, equation) for s in finite)

    hard = functools.partial(hard_selection, rows=equation.rows)
    return with_hard_rows(hard, soft, entries, k, lam, zero)
