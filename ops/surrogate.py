"""A surrogate of top-k accuracy: what it costs the relaxed top-k mask to have the label in it."""

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from .gradients import envelope
from .interface.arguments import STRENGTH, Range, check_axis, check_p, check_range, floating, known
from .interface.labels import LABELS, check_targets, is_class, signed
from .interface.rowwise import ROWS, batch_shape, rowwise
from .losses import topk_fenchel_young_loss
from .scalar.choice import choose
from .topk import topk_mask

# As `UP_TO_N`, but the label takes one.
_FROM_1_TO_N = Range("in [1, {n}], {n} being the size along axis {axis}", 1, share=1.0)


def topk_surrogate_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    k: ArrayLike,
    *,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    axis: int = -1,
    where: ArrayLike | None = None,
) -> Array:
    """``max_y (<x, y> - R(y)) - max_{y: y_label = 1} (<x, y> - R(y))`` over ``0 <= y <= 1, sum(y) = k``.

    ``R(y) = lam / p * ||y||_p^p``, so that the first term is the value ``f_R(x, 1_k)`` of ``relaxed_topk_value``, and
    the second the same where the label is selected beforehand. 0 where the mask selects the label in full, positive
    elsewhere: at ``lam = 0`` it is ``max(0, x_[k] - x_label)``, ``x_[k]`` being the ``k``-th largest of the others: the
    hinge of top-k accuracy without a margin. Indifferent to a common shift of the logits. With ``k = 1``, ``p = 2``
    and ``lam = 1`` it is the sparsemax loss (Martins and Astudillo, 2016); for ``k > 1`` it is, like that hinge, not
    convex.

    The gradient is ``topk_mask(x, k) - t``, with ``t`` the mask where the label is selected beforehand: 1 there,
    ``topk_mask(x, k - 1)`` of the other classes elsewhere. The loss is the Fenchel-Young loss of ``x`` for the target
    ``t``, and computed as such: without cancellation.

    Args:
      logits: real array, any shape; ``n`` is its size along ``axis``. A class with ``-inf`` gets no gradient, unless it
        is the label: then the loss is ``inf``, and the gradient -1 there.
      labels: integers in ``[0, n)``, of the shape of ``logits`` without ``axis``. One out of range that is not known at
        trace time makes its example's loss and gradient NaN.
      k: how many classes the mask selects: a real number in ``[1, n]``; one number, or one per example. At most as many
        as take part. It gets no derivative.
      lam: strength of the relaxation, 0 or in [1e-32, 1e32], in the units of the logits; shape as ``k``.
      p: exponent of the regularisation, a Python number in (1, 2].
      axis: the axis of the classes.
      where: boolean array, broadcasting against ``logits``: classes that take part.

    Returns:
      One loss per example: the shape of ``logits`` without ``axis``; of the dtype of ``logits`` (integers are promoted
      to float). Computed in float32 at least.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.

    >>> float(topk_surrogate_loss([2.0, 1.5, -1.0], 1, k=1, lam=1.0))
    0.5625
    """
    logits = floating(logits, "logits")
    axis = check_axis(axis, logits.ndim, "logits")
    labels, single = check_targets("labels", labels, logits, axis)
    n = logits.shape[axis]
    if not single:
        raise ValueError(f"labels must be integers of shape {batch_shape(logits, axis)}, got one value per class")
    if known(labels):
        check_range("labels", labels, 0, n - 1, f"in [0, {n})")
    return rowwise(
        _losses,
        logits,
        name="logits",
        axis=axis,
        per_row={"k": (k, _FROM_1_TO_N), "lam": (lam, STRENGTH), "labels": (labels, LABELS)},
        where=where,
        returns=ROWS,
        p=check_p(p),
    )


def _losses(x: Array, k: Array, lam: Array, labels: Array, where: Array | None = None, *, p: float) -> Array:
    """Losses of rows ``(rows, n)``."""
    n, k = x.shape[1], lax.stop_gradient(k)
    if where is not None:
        x = choose(where, x, -jnp.inf)
    labels, is_label = signed(labels), is_class(labels, n)
    mask = topk_mask(x, k[:, 0], lam=lam[:, 0], p=p)
    others = topk_mask(x, k[:, 0] - 1.0, lam=lam[:, 0], p=p, where=~is_label)
    selected = choose((labels >= 0) & (labels < n), choose(is_label, 1.0, others), jnp.nan)

    def regularisation(y: Array) -> Array:
        positive = y > 0
        return jnp.sum(choose(positive, choose(positive, y, 1.0) ** p, 0.0), axis=-1, keepdims=True) / p

    # The target is within the polytope but for rounding, which `smooth` undoes.
    at, target = lax.stop_gradient((x, selected))
    value = topk_fenchel_young_loss(at, target, k[:, 0], target="smooth", lam=lam[:, 0], p=p)[:, None]
    missing = jnp.any(is_label & (x == -jnp.inf), axis=-1, keepdims=True)
    value = choose(missing, jnp.inf, value)
    # By Danskin's theorem, once for each of the two maxima.
    return envelope(value, (x, lam), (mask - selected, regularisation(selected) - regularisation(mask)))
