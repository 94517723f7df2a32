"""An entrywise ``where`` that adds as few equations to a program as possible."""

from typing import Any

import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike


def choose(condition: Array, a: ArrayLike, b: ArrayLike, dtype: Any = None) -> Array:
    """Returns ``jnp.where(condition, a, b)`` in two equations of a program; ``jnp.where`` takes four and a call.

    An operator makes about a hundred such choices, and the time to trace, differentiate and compile a program grows
    with its equations. Only for arrays inside ``ops.interface.rowwise``, which carry no sharding.

    Args:
      condition: boolean array.
      a: the values where the condition holds: an array, or a number.
      b: the values elsewhere: an array of the dtype of ``a``, or a number.
      dtype: dtype of the result if both are numbers.
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
