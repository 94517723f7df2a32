"""Top-k accuracy, for several k at once, and a surrogate loss of it."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from . import interface
from .arithmetic import choose
from .gradients import envelope
from .interface import FEATURES, INTEGERS, Range, rowwise
from .losses import Reduction, by_example, is_class, loss_of_rows, regularisation
from .scalar.equation import Equation
from .topk import topk_mask

# Like `UP_TO_N`, but the label needs a k of at least 1.
_FROM_1_TO_N = Range("in [1, {n}], {n} being the size along axis {axis}", 1, share=1.0)


def topk_accuracy(
    logits: ArrayLike, labels: ArrayLike, k: int | Sequence[int], *, axis: int = -1, where: ArrayLike | None = None
) -> Array:
    """Returns whether the label is among the ``k`` largest logits; its mean over examples is the top-k accuracy.

    The rank of the label is counted, without a sort, whatever ``k``. Among equal logits the first ranks first, as in
    ``lax.top_k``. If an example has several labels, one of them suffices.

    Args:
      logits: real array, any shape. A NaN never ranks ahead of a label, and a label whose logit is NaN is never a hit.
      labels: integers of the shape of ``logits`` without ``axis``; a label out of range is never a hit. Alternatively
        one value per class, of the shape of ``logits``, non-zero where the class is a label (multi-hot).
      k: a Python integer in ``[1, n]``, ``n`` the size of ``logits`` along ``axis``; or a tuple, list or range of them.
      axis: the axis of the classes.
      where: boolean array, broadcasting against ``logits``: classes that take part. The others are never a hit.

    Returns:
      Boolean array of the shape of ``logits`` without ``axis``; with an axis at the end for several ``k``.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `topk_fenchel_young_loss` and `topk_surrogate_loss` to train for it.

    >>> topk_accuracy([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]], [1, 2], 1)
    Array([False,  True], dtype=bool)
    >>> topk_accuracy([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]], [1, 2], (1, 2))
    Array([[False,  True],
           [ True,  True]], dtype=bool)
    """
    logits = interface.real(logits, "logits")
    axis = interface.check_axis(axis, logits.ndim, "logits")
    n = logits.shape[axis]
    allowed = f"in [1, {n}], the size along axis {axis}"
    ks = [interface.check_whole("k", cutoff, 1, n, allowed) for cutoff in (k if isinstance(k, Sequence) else (k,))]
    labels, single = interface.check_labels(labels, logits, axis)
    hits = rowwise(
        _hits,
        logits,
        name="logits",
        axis=axis,
        aligned=None if single else {"labels": labels.astype(bool)},
        per_row={"labels": (labels, INTEGERS)} if single else None,
        where=where,
        constants={"ks": np.array(ks, np.int32)},
        returns=FEATURES,
    )
    hits = jnp.moveaxis(hits, axis, -1)
    return hits if isinstance(k, Sequence) else hits[..., 0]


def _hits(x: Array, labels: Array, where: Array | None = None, *, ks: Array) -> Array:
    """Returns hits ``(rows, len(ks))`` for rows ``(rows, n)`` with one label each, or one value per class."""
    n = x.shape[1]
    present = jnp.full(x.shape, True) if where is None else where
    classes = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    chosen = labels if labels.dtype == bool else is_class(labels, n)
    chosen = chosen & present & ~jnp.isnan(x)
    # The largest logit of a label, and the first label that has it.
    score = jnp.max(choose(chosen, x, -jnp.inf), axis=1, keepdims=True)
    first = jnp.min(choose(chosen & (x == score), classes, n), axis=1, keepdims=True)
    ahead = present & ((x > score) | ((x == score) & (classes < first)))
    rank = jnp.sum(ahead, axis=1, keepdims=True, dtype=jnp.int32)
    return jnp.any(chosen, axis=1, keepdims=True) & (rank < ks.reshape(1, -1))


def topk_surrogate_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    k: ArrayLike,
    *,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    axis: int = -1,
    where: ArrayLike | None = None,
    class_weights: ArrayLike | None = None,
    example_weights: ArrayLike | None = None,
    ignore_index: int | None = None,
    reduction: Reduction = "none",
) -> Array:
    """Returns the drop of ``relaxed_topk_value`` if the mask must select the label, per example.

    It is ``max_y (<x, y> - R(y)) - max_{y: y_label = 1} (<x, y> - R(y))`` over ``0 <= y <= 1, sum(y) = k``, with
    ``R(y) = lam / p * ||y||_p^p``: 0 where the mask selects the label in full, and positive elsewhere. At ``lam = 0``
    it is ``max(0, x_[k] - x_label)``, with ``x_[k]`` the ``k``-th largest of the other logits: the hinge loss of top-k
    accuracy without a margin. Shifting all logits equally does not change it. With ``k = 1``, ``p = 2`` and ``lam = 1``
    it is the sparsemax loss (Martins and Astudillo, 2016); for ``k > 1`` it is not convex, like that hinge loss.

    The gradient is ``topk_mask(x, k) - t``. The target ``t`` is 1 at the label, and for the other classes their own
    ``topk_mask(x, k - 1)``. The loss is computed as the Fenchel-Young loss of ``x`` for ``t``, without cancellation.

    Args:
      logits: real array, any shape; ``n`` is its size along ``axis``. A class with ``-inf`` gets no gradient. If it
        is the label, the loss is ``inf`` and the gradient there -1.
      labels: integers in ``[0, n)``, of the shape of ``logits`` without ``axis``. A traced label out of range makes the
        loss and gradient of its example NaN.
      k: how many classes the mask selects: a real number in ``[1, n]``; one number, or one per example. It is
        reduced to the number of classes that take part, and gets no derivative.
      lam: strength of the relaxation, 0 or in [1e-32, 1e32], in the units of the logits; shape as ``k``.
      p, axis, where, class_weights, example_weights, ignore_index, reduction: as in ``topk_fenchel_young_loss``.

    Returns:
      One loss per example, or a scalar if reduced, as in ``topk_fenchel_young_loss``.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `topk_fenchel_young_loss` for a convex loss; `relaxed_topk_value` for the value that drops; `topk_accuracy` to
      evaluate.

    >>> float(topk_surrogate_loss([2.0, 1.5, -1.0], 1, k=1, lam=1.0))
    0.5625
    """
    logits = interface.floating(logits, "logits")
    axis = interface.check_axis(axis, logits.ndim, "logits")
    labels, single = interface.check_labels(labels, logits, axis)
    if not single:
        raise ValueError("labels must be integers, one per example, got one value per class")
    return by_example(
        _surrogate_of_rows,
        logits,
        labels,
        lam=lam,
        p=p,
        axis=axis,
        where=where,
        class_weights=class_weights,
        example_weights=example_weights,
        ignore_index=ignore_index,
        reduction=reduction,
        per_row={"k": (k, _FROM_1_TO_N)},
    )


def _surrogate_of_rows(x: Array, t: Array, lam: Array, present: Array, *, k: Array, equation: Equation) -> Array:
    """Returns the losses ``(rows, 1)`` of rows ``(rows, n)``; ``t`` is 1 at the label, or NaN if there is none."""
    p, k = equation.p, lax.stop_gradient(k)
    x, is_label = choose(present, x, -jnp.inf), t == 1
    mask = topk_mask(x, k[:, 0], lam=lam[:, 0], p=p)
    others = topk_mask(x, k[:, 0] - 1.0, lam=lam[:, 0], p=p, where=~is_label)
    selected = choose(is_label, 1.0, others + t)  # t is 0 there, or NaN

    # The target lies in the polytope up to rounding, which `smooth` corrects.
    at, target = lax.stop_gradient((x, selected))
    value = loss_of_rows(at, target, lam, present, k=k, equation=equation, smooth=True)
    missing = jnp.any(is_label & (x == -jnp.inf), axis=-1, keepdims=True)
    value = choose(missing, jnp.inf, value)
    # Both maxima have the derivatives that Danskin's theorem gives.
    return envelope(value, (x, lam), (mask - selected, regularisation(selected, p) - regularisation(mask, p)))
