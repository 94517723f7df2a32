"""Choices entry by entry, in as few equations as there can be."""

from typing import Any

import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike


def choose(condition: Array, a: ArrayLike, b: ArrayLike, dtype: Any = None) -> Array:
    """``jnp.where(condition, a, b)``: two equations of a program, where that takes four and a call.

    The operators choose some hundred times, and a program is traced, differentiated and compiled by its equations. For
    arrays behind the door (``ops.interface.rowwise``), that lie on no mesh any more.

    Args:
      condition: boolean.
      a: where it holds: an array, or a number.
      b: elsewhere: an array of the dtype of ``a``, or a number.
      dtype: of numbers, where there is no array among the two.
    """
    shape = lax.broadcast_shapes(np.shape(condition), np.shape(a), np.shape(b))  # these may be symbolic
    for value in (a, b):
        dtype = getattr(value, "dtype", dtype)

    def spread(value: Any, dtype: Any = dtype) -> Array:
        if isinstance(value, float | int):
            return lax.full(shape, value, dtype)
        lead = len(shape) - value.ndim
        return value if value.shape == shape else lax.broadcast_in_dim(value, shape, range(lead, len(shape)))

    return lax.select(spread(condition, bool), spread(a), spread(b))
