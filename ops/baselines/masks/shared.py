"""Helpers of the masks: rows with a strength, rows without infinities, sums of exponentials of distances."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from ...interface import Axis, Range, rowwise
from ...scalar.arithmetic import choose

# In units of the strength: beyond it every tail is 0, in double precision too.
FAR = 750.0


def mask_rows(
    mask: Callable[..., Array], x: ArrayLike, axis: Axis, per_row: dict[str, tuple[ArrayLike, Range]], **options: Any
) -> Array:
    """Returns ``mask`` of the rows of ``x`` along ``axis`` (``ops.interface``). A NaN makes its row NaN."""
    return rowwise(_marked, x, axis=axis, per_row=per_row, mask=mask, **options)


def _marked(x: Array, *, mask: Callable[..., Array], **arguments: Any) -> Array:
    return choose(jnp.any(jnp.isnan(x), axis=-1, keepdims=True), jnp.nan, mask(x, **arguments))


def finite_above(x: Array) -> Array:
    """Returns ``x`` with the largest float in place of ``+inf``; infinite entries then tie."""
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


def sum_above(weights: Array, s: Array, temperature: Array) -> Array:
    """Returns ``sum_{i <= j} w_i exp(-(s_i - s_j) / temperature)``, ``(rows, n)``, for finite descending rows ``s``.

    The sum over the 2h entries that end with ``j`` is that over the h entries that end with ``j``, plus that over the h
    entries that end with ``j - h`` times ``exp(-(s_{j-h} - s_j) / temperature)``. So h doubles until it reaches n. All
    factors are between 0 and 1: nothing overflows, and rounding errors grow only with log n. Takes O(n log n) time and
    O(n) memory; O(n log n) memory in reverse mode.
    """
    n = s.shape[-1]
    # Padding before the first entry has weight 0, and a difference of the right sign.
    padded = jnp.concatenate([jnp.broadcast_to(s[:, :1], s.shape), s], axis=-1)

    # Reverse mode recomputes the factors; storing them would take several more arrays for each h.
    @jax.checkpoint
    def double(total: Array, h: Array) -> Array:
        def earlier(array: Array) -> Array:
            return lax.dynamic_slice_in_dim(array, n - h, n, axis=1)

        # The bound first, then the quotient: otherwise derivatives meet 0 * inf.
        away = jnp.minimum(earlier(padded) - s, FAR * temperature) / temperature
        return total + jnp.exp(-away) * earlier(jnp.pad(total, ((0, 0), (n, 0))))

    shifts = 2 ** jnp.arange((n - 1).bit_length(), dtype=jnp.int32)
    return lax.scan(lambda total, h: (double(total, h), None), weights, shifts)[0]


def sum_below(weights: Array, s: Array, temperature: Array) -> Array:
    """Returns ``sum_{i >= j} w_i exp(-(s_j - s_i) / temperature)``, ``sum_above`` from the other end."""
    return sum_above(weights[:, ::-1], -s[:, ::-1], temperature)[:, ::-1]
