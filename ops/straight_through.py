"""A value from one operator with the derivatives of another."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ops.arguments import real


def straight_through(hard: ArrayLike, soft: ArrayLike) -> Array:
    """The value of ``hard`` with the derivatives of ``soft`` (the straight-through estimator of Bengio et al., 2013).

    Args:
      hard: floating array, for instance ``hard_topk_mag(x, k)``. It receives no gradient.
      soft: array of the same shape and dtype, for instance ``topk_mag(x, k)``.

    Returns:
      ``hard``.

    Raises:
      ValueError: they are not floating, or differ in shape or dtype.
    """
    hard, soft = real(hard, "hard"), real(soft, "soft")
    if not jnp.issubdtype(soft.dtype, jnp.floating):
        raise ValueError(f"soft must be a floating array, or it has no derivative, got {soft.dtype}")
    if hard.shape != soft.shape or hard.dtype != soft.dtype:
        raise ValueError(
            f"hard must have the shape and dtype of soft, {soft.dtype} of shape {soft.shape}, "
            f"got {hard.dtype} of shape {hard.shape}"
        )
    return _straight_through(hard, soft)


@jax.custom_jvp
def _straight_through(hard: Array, soft: Array) -> Array:
    return hard


@_straight_through.defjvp
def _straight_through_jvp(primals, tangents):
    hard, soft = primals
    # Built on `soft` again, so that second derivatives are those of `soft` too.
    return _straight_through(hard, soft), tangents[1]
