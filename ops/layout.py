"""Arrays of any shape as rows, rows in descending order, and the ways back."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax


def batch_shape(x: Array, axis: int) -> tuple[int, ...]:
    """The shape of ``x`` without ``axis`` (not negative): that of one value per row."""
    return x.shape[:axis] + x.shape[axis + 1 :]


def as_rows(x: Array, axis: int, dtype: jnp.dtype) -> tuple[Array, Callable[[Array], Array]]:
    """``x`` as rows along ``axis``, shape ``(rows, n)``, and the function that puts such rows back.

    Args:
      x: array with at least one dimension.
      axis: non-negative.
      dtype: of the rows; what is put back has that of ``x``.
    """
    moved = jnp.moveaxis(x, axis, -1)

    def restore(rows: Array) -> Array:
        return jnp.moveaxis(rows.reshape(moved.shape).astype(x.dtype), -1, axis)

    return moved.reshape(-1, moved.shape[-1]).astype(dtype), restore


def descending(x: Array) -> tuple[Array, Callable[[Array], Array]]:
    """The entries of each row in descending order, and the map that puts values of that order back into place.

    Equal entries keep their order. The order is a constant to differentiation.
    """
    order = jnp.argsort(lax.stop_gradient(x), axis=-1, descending=True)

    def restore(y: Array) -> Array:
        return jnp.put_along_axis(jnp.zeros_like(y), order, y, axis=-1, inplace=False)

    return jnp.take_along_axis(x, order, axis=-1), restore
