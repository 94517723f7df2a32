"""What the targets of a classifier may be: one label per example, or one value per class."""

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from .arguments import Range, real
from .rowwise import batch_shape

LABELS = Range("integers", integer=True)


def check_targets(name: str, targets: ArrayLike, logits: Array, axis: int) -> tuple[Array, bool]:
    """The targets as an array, and whether they are labels: integers of the shape of ``logits`` without ``axis``.

    Otherwise they are one value per class, of the shape of ``logits``.

    Raises:
      ValueError: they are neither.
    """
    targets, batch = real(targets, name), batch_shape(logits, axis)
    if targets.shape == logits.shape:
        return targets, False
    if jnp.issubdtype(targets.dtype, jnp.integer) and targets.shape == batch:
        return targets, True
    hint = ": squeeze them" if targets.shape == (*batch, 1) else ""
    raise ValueError(
        f"{name} must be integer labels of shape {batch} or have the shape of logits, {logits.shape}; "
        f"got {targets.dtype} of shape {targets.shape}{hint}"
    )


def signed(labels: Array) -> Array:
    """Labels in a signed type wide enough to be compared with any number of classes."""
    return labels.astype(jnp.int64 if labels.dtype.itemsize == 8 else jnp.int32)


def is_class(labels: Array, n: int) -> Array:
    """Which of ``n`` classes are the labels ``(rows, 1)``: bool, ``(rows, n)``."""
    labels = signed(labels)
    return lax.broadcasted_iota(labels.dtype, (labels.shape[0], n), 1) == labels
