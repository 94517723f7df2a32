"""Top-k accuracy, for every k at once."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .interface import FEATURES, INTEGERS, check_axis, check_targets, check_whole, real, rowwise
from .losses import is_class
from .scalar.arithmetic import choose


def topk_accuracy(
    logits: ArrayLike, labels: ArrayLike, max_k: int, *, axis: int = -1, where: ArrayLike | None = None
) -> Array:
    """Returns whether the label is among the ``k`` largest logits, for ``k = 1, ..., max_k`` at once.

    The rank of the label is counted, without a sort. Among equal logits the first ranks first, as in ``lax.top_k``. If
    an example has several labels, one of them suffices.

    Args:
      logits: real array, any shape. A NaN never ranks ahead of a label, and a label whose logit is NaN is never a hit.
      labels: integers of the shape of ``logits`` without ``axis``; a label out of range is never a hit. Alternatively
        one value per class, of the shape of ``logits``, non-zero where the class is a label (multi-hot).
      max_k: a Python integer in ``[1, n]``, ``n`` the size of ``logits`` along ``axis``.
      axis: the axis of the classes.
      where: boolean array, broadcasting against ``logits``: classes that take part. The others are never a hit.


    Returns:
      Boolean array of the shape of ``logits`` without ``axis``, with ``max_k`` at the end.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.

    >>> topk_accuracy([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]], [1, 2], 2)
    Array([[False,  True],
           [ True,  True]], dtype=bool)
    """
    logits = real(logits, "logits")
    axis = check_axis(axis, logits.ndim, "logits")
    n = logits.shape[axis]
    max_k = check_whole("max_k", max_k, 1, n, f"in [1, {n}], the size along axis {axis}")
    labels, single = check_targets("labels", labels, logits, axis)
    hits = rowwise(
        _hits,
        logits,
        name="logits",
        axis=axis,
        aligned=None if single else {"labels": labels.astype(bool)},
        per_row={"labels": (labels, INTEGERS)} if single else None,
        where=where,
        returns=FEATURES,
        max_k=max_k,
    )
    return jnp.moveaxis(hits, axis, -1)


def _hits(x: Array, labels: Array, where: Array | None = None, *, max_k: int) -> Array:
    """Returns hits ``(rows, max_k)`` for rows ``(rows, n)`` with one label each, or one value per class."""
    n = x.shape[1]
    present = jnp.full(x.shape, True) if where is None else where
    classes = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
    chosen = labels if labels.dtype == bool else is_class(labels, n)
    chosen = chosen & present & ~jnp.isnan(x)
    # The largest logit of a label, and the first label that has it.
    score = jnp.max(choose(chosen, x, -jnp.inf), axis=1, keepdims=True)
    first = jnp.min(choose(chosen & (x == score), classes, n), axis=1, keepdims=True)
    ahead = present & ((x > score) | ((x == score) & (classes < first)))
    rank = jnp.sum(ahead, axis=1, keepdims=True, dtype=jnp.int32)
    hits = rank < jnp.arange(1, max_k + 1, dtype=jnp.int32).reshape(1, max_k)
    return jnp.any(chosen, axis=1, keepdims=True) & hits
