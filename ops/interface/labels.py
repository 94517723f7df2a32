"""Targets of a classifier: one label per example, or one value per class."""

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from .arguments import Range, real
from .rowwise import batch_shape

LABELS = Range("integers", integer=True)


def check_targets(name: str, targets: ArrayLike, logits: Array, axis: int) -> tuple[Array, bool]:
    """Returns the targets as an array, and whether they are labels.

    Labels are integers of the shape of ``logits`` without ``axis``. Other targets have one value per class, in the
    shape of ``logits``.

    Raises:
      ValueError: the targets are neither.
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
    """Returns labels in a signed dtype wide enough for any number of classes."""
    return labels.astype(jnp.int64 if labels.dtype.itemsize == 8 else jnp.int32)


def is_class(labels: Array, n: int) -> Array:
    """Returns the one-hot encoding of labels ``(rows, 1)`` as booleans ``(rows, n)``."""
    labels = signed(labels)
    return lax.broadcasted_iota(labels.dtype, (labels.shape[0], n), 1) == labels
