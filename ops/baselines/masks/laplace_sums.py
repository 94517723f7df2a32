"""Sums ``sum_i w_i exp(-|s_i - s_j| / temperature)`` for all ``j`` without the matrix of all pairs.

Over entries in descending order the sum over the 2h entries that end with ``j`` is that over the h entries that end
with ``j``, plus that over the h entries that end with ``j - h`` times ``exp(-(s_{j-h} - s_j) / temperature)``. So h
doubles until it reaches n. All factors are between 0 and 1 and belong to a single difference of entries: nothing
overflows, even for entries far above the temperature, and rounding errors grow only with log n.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

# exp(-750) is 0 in double precision, too.
_FAR = 750.0


def sum_above(weights: Array, s: Array, temperature: Array) -> Array:
    """Returns ``sum_{i <= j} w_i exp(-(s_i - s_j) / temperature)``, ``(rows, n)``, for finite descending rows ``s``.

    Takes O(n log n) time and O(n) memory; O(n log n) memory in reverse mode.
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
        away = jnp.minimum(earlier(padded) - s, _FAR * temperature) / temperature
        return total + jnp.exp(-away) * earlier(jnp.pad(total, ((0, 0), (n, 0))))

    shifts = 2 ** jnp.arange((n - 1).bit_length(), dtype=jnp.int32)
    return lax.scan(lambda total, h: (double(total, h), None), weights, shifts)[0]


def sum_below(weights: Array, s: Array, temperature: Array) -> Array:
    """Returns ``sum_{i >= j} w_i exp(-(s_j - s_i) / temperature)``, ``sum_above`` from the other end."""
    return sum_above(weights[:, ::-1], -s[:, ::-1], temperature)[:, ::-1]
