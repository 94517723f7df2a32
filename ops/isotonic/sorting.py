"""Sorting of rows in descending order, and its inverse."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax


def descending(x: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Returns the entries of each row in descending order, and the function that restores the original order.

    Equal entries keep their order. The order is a constant to differentiation.
    """
    order = jnp.argsort(lax.stop_gradient(x), axis=-1, descending=True)

    def restore(y: Array) -> Array:
        row = lax.broadcasted_iota(order.dtype, order.shape, 0)
        return jnp.zeros_like(y).at[row, order].set(y, mode="promise_in_bounds", unique_indices=True)

    return jnp.take_along_axis(x, order, axis=-1), restore
