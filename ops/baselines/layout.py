"""What the baselines share: functions of rows applied to any array, and rows without extremes."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from ops.arguments import check_range, working_dtype
from ops.layout import as_rows


def map_rows(function: Callable[[Array], Array], x: Array, axis: int) -> Array:
    """``function`` of a matrix ``(rows, n)`` applied to ``x`` along ``axis``, in the shape and dtype of ``x``.

    The matrix is float32 at least. A NaN makes its row NaN.
    """
    rows, restore = as_rows(x, axis, working_dtype(x.dtype))
    return restore(jnp.where(jnp.any(jnp.isnan(rows), axis=-1, keepdims=True), jnp.nan, function(rows)))


def check_positive(name: str, value: ArrayLike) -> None:
    """Checks the strength of a relaxation."""
    limits = jnp.finfo(jnp.float32)
    check_range(name, value, float(limits.tiny), float(limits.max), "positive and finite")


def finite_above(x: Array) -> Array:
    """``x`` with the largest float in the place of ``+inf``; infinite entries then tie."""
    return jnp.where(x == jnp.inf, jnp.finfo(x.dtype).max, x)


def finite(x: Array) -> Array:
    """``x`` with the smallest and largest floats in the place of ``-inf`` and ``+inf``."""
    limits = jnp.finfo(x.dtype)
    return jnp.clip(x, limits.min, limits.max)


def unit_of(x: Array) -> Array:
    """The largest magnitude of each row, ``(rows, 1)``, as a constant to divide the row by: positive, and so that its
    inverse is a normal float."""
    limits = jnp.finfo(x.dtype)
    largest = lax.stop_gradient(jnp.max(jnp.abs(x), axis=-1, keepdims=True))
    return jnp.where(largest > 0, jnp.clip(largest, limits.tiny, 1.0 / limits.tiny), 1.0)
