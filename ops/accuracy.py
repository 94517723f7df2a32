"""Top-k accuracy, for every k at once."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ops.arguments import check_axis, check_range, check_where, floating


def topk_accuracy(
    logits: ArrayLike, labels: ArrayLike, max_k: int, *, axis: int = -1, where: ArrayLike | None = None
) -> Array:
    """Whether the label is among the ``k`` largest logits, for ``k = 1, ..., max_k`` in one pass.

    The rank of the label is counted, without a sort; among equal logits the first come first, as in ``lax.top_k``.
    Where an example has several labels, one of them suffices.

    Args:
      logits: real array, any shape. A NaN is never ahead of a label, and a label with a NaN never a hit.
      labels: integers of the shape of ``logits`` without ``axis``; out of range they are never a hit. Or one value per
        class, of the shape of ``logits``: not 0 where the class is a label (multi-hot). No label is never a hit.
      max_k: a Python integer in ``[1, n]``, ``n`` the size of ``logits`` along ``axis``.
      axis: the axis of the classes.
      where: boolean array, broadcasting against ``logits``: classes that take part. Others are never a hit.

    Returns:
      Boolean array of the shape of ``logits`` without ``axis``, with ``max_k`` at the end.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.
    """
    logits = floating(logits, "logits")
    axis = check_axis(axis, logits.ndim)
    n = logits.shape[axis]
    check_range("max_k", max_k, 1, n, f"in [1, {n}], the size along axis {axis}")
    present = jnp.full(logits.shape, True) if where is None else check_where(where, logits.shape)
    classes = jax.lax.broadcasted_iota(jnp.int32, logits.shape, axis)
    chosen = _per_class(jnp.asarray(labels), logits.shape, axis) & present & ~jnp.isnan(logits)
    # The best of the labels, and the first of those.
    score = jnp.max(jnp.where(chosen, logits, -jnp.inf), axis=axis, keepdims=True)
    label = jnp.min(jnp.where(chosen & (logits == score), classes, n), axis=axis, keepdims=True)
    ahead = present & ((logits > score) | ((logits == score) & (classes < label)))
    rank = jnp.sum(ahead, axis=axis, dtype=jnp.int32)
    valid = jnp.any(chosen, axis=axis)
    hits = jnp.expand_dims(rank, -1) < jnp.arange(1, max_k + 1, dtype=jnp.int32).reshape((1,) * rank.ndim + (-1,))
    return jnp.expand_dims(valid, -1) & hits


def _per_class(labels: Array, shape: tuple[int, ...], axis: int) -> Array:
    """Which classes are labels."""
    if labels.shape == shape:
        return labels.astype(jnp.bool_)
    batch = shape[:axis] + shape[axis + 1 :]
    if not jnp.issubdtype(labels.dtype, jnp.integer) or labels.shape != batch:
        raise ValueError(
            f"labels must be integers of shape {batch} or have the shape of logits, {shape}; "
            f"got {labels.dtype} of shape {labels.shape}"
        )
    return jax.lax.broadcasted_iota(labels.dtype, shape, axis) == jnp.expand_dims(labels, axis)
