"""Functions that the masks share: rows with a NaN, infinite entries, and a unit to divide by."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from ...interface import Axis, Range, rowwise
from ...scalar.arithmetic import choose

# The distance, in units of the strength, from which on every tail is 0, in double precision too.
FAR = 750.0


def mask_rows(
    mask: Callable[..., Array], x: ArrayLike, axis: Axis, per_row: dict[str, tuple[ArrayLike, Range]], **options: Any
) -> Array:
    """Returns ``mask`` of the rows of ``x`` along ``axis`` (``ops.interface``). A NaN makes its row NaN."""
    return rowwise(_marked, x, axis=axis, per_row=per_row, mask=mask, **options)


def _marked(x: Array, *, mask: Callable[..., Array], **arguments: Any) -> Array:
    return choose(jnp.any(jnp.isnan(x), axis=-1, keepdims=True), jnp.nan, mask(x, **arguments))


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
