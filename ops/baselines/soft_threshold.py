"""Soft thresholding: the proximal operator of the L1 norm."""

import jax
import jax.numpy as jnp

from ops.topk import hard_topk_mask


def soft_threshold(x: jax.Array, threshold: jax.Array | float) -> jax.Array:
    """`argmin_y |y - x|^2 / 2 + threshold |y|_1 = sign(x) max(|x| - threshold, 0)`."""
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - threshold, 0.0)


def soft_threshold_topk(x: jax.Array, k: jax.Array | int) -> jax.Array:
    """`soft_threshold` of a vector [n] at its (k+1)-th largest magnitude, so that k entries are left.

    Fewer are left if entries tie there. `k` may be traced, and need not be whole: it is rounded
    down.
    """
    magnitude = jnp.abs(x)
    kept = hard_topk_mask(magnitude, jnp.floor(k))
    return soft_threshold(x, jnp.where(kept > 0, 0, magnitude).max())
