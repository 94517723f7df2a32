"""Functions that the masks share: rows that are hard or have a NaN, infinite entries, and a unit to divide by."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from ...arithmetic import choose
from ...interface import STRENGTH, Axis, Range, ZeroLam, rows_with_zero_lam, rowwise
from ...scalar.mask import anywhere, hard_selection

# The distance, in units of the strength, from which on every tail is 0, in double precision too.
FAR = 750.0


def mask_rows(
    mask: Callable[..., Array],
    x: ArrayLike,
    k: ArrayLike,
    limits: Range,
    lam: ArrayLike,
    axis: Axis,
    **options: Any,
) -> Array:
    """Returns ``mask`` of the rows of ``x`` along ``axis`` (``ops.interface``), the hard mask where ``lam = 0``.

    ``limits`` are those of ``k``. A NaN makes its row NaN. ``where`` among the options leaves the others out.
    """
    per_row = {"k": (k, limits), "lam": (lam, STRENGTH)}
    return rowwise(_hard_or_soft, x, axis=axis, per_row=per_row, mask=mask, zero=rows_with_zero_lam(lam), **options)


def _hard_or_soft(
    x: Array,
    k: Array,
    lam: Array,
    where: Array | None = None,
    *,
    mask: Callable[..., Array],
    zero: ZeroLam,
    **arguments: Any,
) -> Array:
    x = x if where is None else choose(where, x, -jnp.inf)

    def hard() -> Array:
        return hard_selection((x,), k)[0]

    y = hard() if zero == "all" else mask(x, k=k, lam=choose(lam > 0, lam, 1.0), **arguments)
    if zero == "some":
        y = choose(lam == 0, lax.cond(anywhere(lam == 0), hard, lambda: jnp.zeros_like(x)), y)
    return choose(jnp.any(jnp.isnan(x), axis=-1, keepdims=True) | jnp.isnan(lam), jnp.nan, y)


def finite_above(x: Array) -> Array:
    """Returns ``x`` with the largest float in place of ``+inf``, so that infinite entries tie."""
    return choose(x == jnp.inf, jnp.finfo(x.dtype).max, x)


def finite(x: Array) -> Array:
    """Returns ``x`` with the smallest and largest floats in place of ``-inf`` and ``+inf``."""
    limits = jnp.finfo(x.dtype)
    return jnp.clip(x, limits.min, limits.max)


def unit_of(x: Array) -> Array:
    """Returns the largest magnitude of each row as a constant to divide by, shape ``(rows, 1)``.

    It is positive, and clipped so that its inverse is a normal float.
    """
    limits = jnp.finfo(x.dtype)
    largest = lax.stop_gradient(jnp.max(jnp.abs(x), axis=-1, keepdims=True))
    return choose(largest > 0, jnp.clip(largest, limits.tiny, 1.0 / limits.tiny), 1.0)
