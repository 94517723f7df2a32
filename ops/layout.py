"""Arrays of any shape as rows, and back."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array


def as_rows(x: Array, axis: int, dtype: jnp.dtype) -> tuple[Array, Callable[[Array], Array]]:
    """``x`` as rows along ``axis``, shape ``(rows, n)``, and the function that puts such rows back.

    Args:
      x: array with at least one dimension.
      axis: non-negative.
      dtype: of the rows; what is put back has that of ``x``.
    """
    moved = jnp.moveaxis(x, axis, -1)

    def restore(rows: Array) -> Array:
        return jnp.moveaxis(rows.reshape(*moved.shape[:-1], rows.shape[-1]).astype(x.dtype), -1, axis)

    return moved.reshape(-1, moved.shape[-1]).astype(dtype), restore
