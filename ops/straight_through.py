"""A value from one operator with the derivatives of another."""

import jax
from jax import Array


def straight_through(hard: Array, soft: Array) -> Array:
    """The value of ``hard`` with the derivatives of ``soft`` (the straight-through estimator).

    Args:
      hard: array, for instance ``hard_topk_mag(x, k)``. It receives no gradient.
      soft: array of the same shape and dtype, for instance ``topk_mag(x, k)``.
    """
    return _straight_through(hard, soft)


@jax.custom_jvp
def _straight_through(hard: Array, soft: Array) -> Array:
    return hard


@_straight_through.defjvp
def _straight_through_jvp(primals, tangents):
    hard, soft = primals
    # Built on `soft` again, so that second derivatives are those of `soft` too.
    return _straight_through(hard, soft), tangents[1]
