"""Soft thresholding, the proximal operator of the L1 norm, and a smooth shrinkage like it."""

import jax
import jax.numpy as jnp

from ...interface.arguments import floating
from ...topk import hard_topk_mask


def soft_threshold(x: jax.Array, threshold: jax.Array | float) -> jax.Array:
    """Returns `argmin_y |y - x|^2 / 2 + threshold |y|_1 = sign(x) max(|x| - threshold, 0)`."""
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - threshold, 0.0)


def sigshrink(x: jax.Array, threshold: jax.Array | float, sharpness: jax.Array | float) -> jax.Array:
    """Returns `x / (1 + exp(-sharpness (|x| - threshold)))`, smooth away from 0 and exactly 0 only there.

    SigShrink (Atto, Pastor and Mercier, "Smooth Sigmoid Wavelet Shrinkage for Non-Parametric Estimation", ICASSP
    2008). For `sharpness -> inf` it tends to *hard* thresholding, `x` where `|x| > threshold`, not to
    `soft_threshold`: it does not shrink the entries that it keeps.

    >>> sigshrink(jnp.array([0.1, 3.0]), 1.0, 10.0).round(2)
    Array([0., 3.], dtype=float32)
    """
    x = floating(x)
    return x * jax.nn.sigmoid(sharpness * (jnp.abs(x) - threshold))


def soft_threshold_topk(x: jax.Array, k: jax.Array | int) -> jax.Array:
    """Returns `soft_threshold` of a vector [n] at its (k+1)-th largest magnitude, so that k entries are left.

    Fewer are left if entries tie there. `k` may be traced, and need not be whole: it is rounded
    down.

    >>> soft_threshold_topk(jnp.array([1.0, -3.0, 2.0]), 2)
    Array([ 0., -2.,  1.], dtype=float32)
    """
    x = floating(x)
    magnitude = jnp.abs(x)
    kept = hard_topk_mask(magnitude, jnp.floor(k))
    return soft_threshold(x, jnp.where(kept > 0, 0, magnitude).max())
