"""The expected calibration error: by how much confidence differs from accuracy.

Of Guo et al. 2017, "On Calibration of Modern Neural Networks" (ICML): the largest probability of an image's softmax is
its confidence; images are sorted into 15 equal bins of confidence; and the error is the mean over images of the
absolute difference between mean confidence and accuracy of their bin.
"""

import jax
import jax.numpy as jnp

BINS = 15


def gaps(logits: jax.Array, hit: jax.Array) -> jax.Array:
    """Returns confidence minus `hit` in % of each image, in the column of its bin: [B, BINS].

    The sum over bins of the absolute means over images is the error. Logits are [B, n], hits [B], 0 or 100.
    """
    confidence = jax.nn.softmax(logits).max(axis=-1)
    place = jnp.clip((confidence * BINS).astype(jnp.int32), 0, BINS - 1)
    return (100.0 * confidence - hit)[:, None] * jax.nn.one_hot(place, BINS)
