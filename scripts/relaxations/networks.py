"""A relaxed top-k mask by a sorting network: Petersen, Borgelt, Kuehne and Deussen, ICML 2021.

A network compares fixed pairs of places, layer by layer, and exchanges those that are not in order. The relaxed one
exchanges in part: of `a` and `b` it makes `s a + (1 - s) b` and `(1 - s) a + s b`, with `s = sigmoid((a - b) / lam)`.
All layers together are a doubly stochastic matrix, whose first k rows sum to the mask. The network is bitonic: of
O(log(n)^2) layers.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

_FAR = 200.0  # in units of lam, a distance at which nothing is exchanged


def network_topk_mask(x: Array, k: int, *, lam: Array) -> Array:
    """Returns the mask of rows ``[..., n]`` of finite floats; takes ``O(n log(n)^2)`` time, and memory in reverse."""
    n = x.shape[-1]
    levels = (n - 1).bit_length()
    below = lax.stop_gradient(x.min(axis=-1, keepdims=True)) - _FAR * lam
    padded = jnp.concatenate([x, jnp.broadcast_to(below, (*x.shape[:-1], 2**levels - n))], axis=-1)
    # Each layer compares entries `apart`, blocks of `block` entries in turn in descending and in ascending order.
    layers = np.array([(2 ** (i + 1), 2**j) for i in range(levels) for j in range(i, -1, -1)], np.int32).reshape(-1, 2)
    place = jnp.arange(2**levels, dtype=jnp.int32)

    def partner(s: Array, apart: Array) -> Array:
        return jnp.where(place & apart == 0, jnp.roll(s, -apart, axis=-1), jnp.roll(s, apart, axis=-1))

    def exchange(s: Array, layer: Array) -> tuple[Array, Array]:
        block, apart = layer
        other = partner(s, apart)
        wants_larger = (place & apart == 0) == (place & block == 0)
        share = jax.nn.sigmoid(jnp.where(wants_larger, s - other, other - s) / lam)
        return share * s + (1 - share) * other, share

    def back(mask: Array, layer: tuple[Array, Array]) -> tuple[Array, None]:
        (_, apart), share = layer
        return share * mask + (1 - share) * partner(mask, apart), None  # the matrix of a layer is symmetric

    shares = lax.scan(jax.checkpoint(exchange), padded, layers)[1]
    first = jnp.broadcast_to((place < k).astype(x.dtype), padded.shape)
    return lax.scan(jax.checkpoint(back), first, (layers, shares), reverse=True)[0][..., :n]
