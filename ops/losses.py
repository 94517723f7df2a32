"""Fenchel-Young losses of the relaxed top-k mask."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from . import interface
from .arithmetic import TwoFloat, choose, difference, row_sum, select, shift
from .gradients import envelope
from .interface import FULL_PRECISION_ROWS, ROWS, Range, rowwise
from .scalar.equation import Equation
from .scalar.mask import marginal_change, select_topk

Target = Literal["one_hot", "smooth"]
TARGETS: tuple[str, ...] = ("one_hot", "smooth")
Reduction = Literal["none", "mean", "sum"]
REDUCTIONS: tuple[str, ...] = ("none", "mean", "sum")


def topk_fenchel_young_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    k: ArrayLike,
    *,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    target: Target = "one_hot",
    axis: int = -1,
    where: ArrayLike | None = None,
    label_smoothing: ArrayLike = 0.0,
    class_weights: ArrayLike | None = None,
    example_weights: ArrayLike | None = None,
    ignore_index: int | None = None,
    reduction: Reduction = "none",
) -> Array:
    """Returns the top-k loss ``f_R(x, 1_k) + R(t) - <x, t>`` of every example (Section 6 of Sander et al., 2023).

    ``f_R(x, 1_k)`` is ``relaxed_topk_value`` with ``phi(x) = x``, and ``R(t) = lam / p * ||t||_p^p``. The loss is
    convex in the logits ``x``, with the gradient ``topk_mask(x, k) - t``. If the target ``t`` lies in the polytope
    ``0 <= y <= 1, sum(y) = k``, it is a Fenchel-Young loss (Blondel et al., 2020): never negative, 0 where the mask
    equals the target, and unchanged if all logits are shifted equally. With ``k = 1``, ``p = 2`` and ``lam = 1`` it is
    the sparsemax loss (Martins and Astudillo, 2016). The paper omits ``R(t)``, which does not depend on the logits:
    ``lam / p`` for one label.

    - ``target="one_hot"`` uses the labels as targets, as the paper does. For ``k > 1`` a one-hot ``t`` lies outside the
      polytope: the gradient sums to ``k - 1``, and the loss is unbounded below as all logits decrease together.
    - ``target="smooth"`` moves them into the polytope: ``m`` positives among ``n`` classes become
      ``t + (k - m) / (n - m) * (1 - t)``, or ``t * k / m`` if ``m > k``.

    The loss is computed as a sum of non-negative terms, plus ``(k - m)`` times the threshold, so that nothing cancels
    for logits of any size (for ``"one_hot"``, up to a rounding of ``R(t)``).

    Args:
      logits: real array, any shape; ``n`` is its size along ``axis``. A class with ``-inf`` and target 0 costs nothing
        and gets no gradient. If its target is positive, the ``one_hot`` loss is ``inf`` with minus the target as
        gradient, as for cross-entropy, and the ``smooth`` loss treats the class as absent. Logits of ``+inf`` tie: the
        loss is ``inf`` if the mask selects more of them than the target does.
      labels: integers in ``[0, n)``, of the shape of ``logits`` without ``axis``; or one value in [0, 1] per class
        (one-hot, multi-hot, soft), of the shape of ``logits``. A traced integer out of range makes the loss and
        gradient of its example NaN.
      k: how many classes the mask selects: a real number in ``[0, n]``; one number, or one per example. At most the
        number of classes that take part counts.
      lam: strength of the relaxation, 0 or in [1e-32, 1e32], in the units of the logits; shape as ``k``.
      p: exponent of the regularisation, a Python number in (1, 2].
      target: ``"one_hot"`` or ``"smooth"``.
      axis: the axis of the classes.
      where: boolean array, broadcasting against ``logits``: classes that take part.
      label_smoothing: in [0, 1], one number or one per example: the share of the target that is spread evenly over the
        classes that take part, as in ``torch.nn.CrossEntropyLoss``; applied before ``target``.
      class_weights: shape ``(n,)``, >= 0, for integers only: factors of the loss by label, like ``weight`` in PyTorch.
      example_weights: >= 0, one per example: factors of the loss.
      ignore_index: for integers only: examples with this label are ignored, like -100 in PyTorch. Their loss and
        gradient are 0 for any logits.
      reduction: ``"none"`` for one loss per example, or their ``"sum"`` or ``"mean"``. The mean is the sum of losses
        divided by the sum of the weights of examples that are not ignored, and 0 without such examples.

    Returns:
      One loss per example: the shape of ``logits`` without ``axis``, or a scalar if reduced; of the dtype of ``logits``
      (integers are promoted to float). Computed in float32 at least.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `topk_mask`, which gives its gradient; `topk_fenchel_young_mixture` for several ``k`` at once;
      `topk_surrogate_loss` for a loss that is 0 only where the mask selects the label; `topk_accuracy` to evaluate.

    >>> float(topk_fenchel_young_loss([2.0, 1.0, -1.0], 1, k=1, lam=1.0))
    1.0
    """
    return _operate(**locals())


def topk_fenchel_young_mixture(
    logits: ArrayLike,
    labels: ArrayLike,
    weights: ArrayLike,
    *,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    target: Target = "one_hot",
    axis: int = -1,
    where: ArrayLike | None = None,
    label_smoothing: ArrayLike = 0.0,
    class_weights: ArrayLike | None = None,
    example_weights: ArrayLike | None = None,
    ignore_index: int | None = None,
    reduction: Reduction = "none",
) -> Array:
    """Returns ``sum_k weights_k * loss_k`` over ``k = 1, ..., K``, a loss for several top-k accuracies at once.

    Petersen et al. (2022) mix losses over ``k`` in this way. Takes ``K`` times the memory of one loss.

    ``weights`` has one non-negative number for each ``k``, shape ``(K,)`` with ``1 <= K <= n``. Other arguments, result
    and errors are as in ``topk_fenchel_young_loss``.

    See also:
      `topk_fenchel_young_loss` for one ``k``; `topk_accuracy`, which takes several ``k``.

    >>> float(topk_fenchel_young_mixture([2.0, 1.0, -1.0], 1, weights=[0.5, 0.5], lam=1.0))
    1.25
    """
    return _operate(**locals())


def _operate(
    *, logits: ArrayLike, labels: ArrayLike, lam: ArrayLike, p: float, target: Target, axis: int, **options: Any
) -> Array:
    """Returns the loss for a single ``k``, or for the ``weights`` of a mixture, whichever is in ``options``."""
    interface.check_choice("target", target, TARGETS)
    logits = interface.floating(logits, "logits")
    options |= {"lam": lam, "p": p, "axis": axis, "smooth": target == "smooth"}
    if "k" in options:
        return by_example(loss_of_rows, logits, labels, per_row={"k": (options.pop("k"), interface.UP_TO_N)}, **options)
    n = logits.shape[interface.check_axis(axis, logits.ndim, "logits")]
    weights = interface.check_values("weights", options.pop("weights"), interface.NON_NEGATIVE)
    if weights.ndim != 1 or not 1 <= weights.size <= n:
        raise ValueError(f"weights must have shape (K,) with K in [1, {n}], got shape {weights.shape}")
    return by_example(_mixture_of_rows, logits, labels, constants={"weights": weights}, **options)


def by_example(
    loss: Callable[..., Array],
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    lam: ArrayLike,
    p: float,
    axis: int,
    where: ArrayLike | None,
    class_weights: ArrayLike | None,
    example_weights: ArrayLike | None,
    ignore_index: int | None,
    reduction: Reduction,
    label_smoothing: ArrayLike = 0.0,
    per_row: dict[str, Any] | None = None,
    constants: dict[str, Any] | None = None,
    **options: Any,
) -> Array:
    """Returns the losses of examples, weighted and reduced; arguments are as in ``topk_fenchel_young_loss``.

    ``loss`` is a function of rows, of one target per class, and of ``lam``, ``present``, ``equation`` and whatever is
    in ``per_row``, ``constants`` and ``options``.
    """
    interface.check_choice("reduction", reduction, REDUCTIONS)
    logits = interface.floating(logits, "logits")
    axis = interface.check_axis(axis, logits.ndim, "logits")
    n = logits.shape[axis]
    labels, single = interface.check_labels(labels, logits, axis)
    per_row, aligned, constants = {"lam": (lam, interface.STRENGTH)} | (per_row or {}), {}, dict(constants or {})
    if ignore_index is not None:
        ignore_index = interface.check_whole("ignore_index", ignore_index, -(2**31), 2**31 - 1, "a label")
    if single:
        if interface.known(labels):
            counted = np.asarray(labels)
            counted = counted if ignore_index is None else counted[counted != ignore_index]
            interface.check_values("labels", counted, Range(f"in [0, {n}) where there is one per example", 0, n - 1))
        per_row["labels"] = (labels, interface.INTEGERS)
    else:
        if labels.dtype != bool:
            interface.check_values("labels", labels, Range("in [0, 1] where there is one per class", 0, 1))
        for name, value in (("ignore_index", ignore_index), ("class_weights", class_weights)):
            if value is not None:
                raise ValueError(f"{name} must be None unless labels are integers, got labels of shape {labels.shape}")
        aligned["labels"] = labels
    if not interface.known(label_smoothing) or np.any(label_smoothing != 0):
        per_row["label_smoothing"] = (label_smoothing, interface.SHARE)
    if example_weights is not None:
        per_row["example_weights"] = (example_weights, interface.NON_NEGATIVE)
    if class_weights is not None:
        constants["class_weights"] = interface.check_values("class_weights", class_weights, interface.NON_NEGATIVE)
        if np.shape(class_weights) != (n,):
            raise ValueError(
                f"class_weights must have shape ({n},), one per class, got shape {np.shape(class_weights)}"
            )
    losses, sizes = rowwise(
        _weighted,
        logits,
        name="logits",
        axis=axis,
        aligned=aligned,
        per_row=per_row,
        where=where,
        constants=constants,
        returns=(ROWS if reduction == "none" else FULL_PRECISION_ROWS, FULL_PRECISION_ROWS),
        loss=loss,
        equation=Equation(interface.check_p(p), zero=interface.rows_with_zero_lam(lam)),
        ignore_index=ignore_index,
        **options,
    )
    if reduction == "none":
        return losses
    total = jnp.sum(losses)
    if reduction == "mean":
        size = jnp.sum(sizes)
        total = choose(size > 0, total / choose(size > 0, size, 1.0), 0.0)
    return total.astype(logits.dtype)


def _weighted(
    x: Array,
    lam: Array,
    labels: Array,
    where: Array | None = None,
    label_smoothing: Array | None = None,
    class_weights: Array | None = None,
    example_weights: Array | None = None,
    *,
    loss: Callable[..., Array],
    ignore_index: int | None,
    **options: Any,
) -> tuple[Array, Array]:
    """Returns the weighted losses of rows and the weights, ``(rows, 1)`` each; ``loss`` takes one target per class."""
    present = jnp.full(x.shape, True) if where is None else where
    ignored, weight = jnp.full((x.shape[0], 1), False), jnp.ones((x.shape[0], 1), x.dtype)
    t = labels
    if jnp.issubdtype(labels.dtype, jnp.integer):
        n = x.shape[1]
        if ignore_index is not None:
            ignored = labels == ignore_index
        t = choose(ignored | ((labels >= 0) & (labels < n)), is_class(labels, n).astype(x.dtype), jnp.nan)
        if class_weights is not None:
            weight = class_weights.astype(x.dtype)[jnp.clip(labels, 0, n - 1)]
    t = t.astype(x.dtype)
    if label_smoothing is not None:
        spread = choose(present, row_sum(choose(present, t, 0.0)) / row_sum(present.astype(x.dtype)), 0.0)
        t = (1.0 - label_smoothing) * t + label_smoothing * spread
    if example_weights is not None:
        weight = weight * example_weights
    x = choose(ignored, 0.0, x)  # keeps NaNs of ignored examples out of derivatives
    losses = loss(x, t, lam, present, **options)
    # With weight 0 even an infinite loss counts as 0.
    weighed = choose((weight == 0) & jnp.isinf(losses), 0.0, losses) * weight
    return choose(ignored, 0.0, weighed), choose(ignored, 0.0, weight)


def loss_of_rows(
    x: Array, t: Array, lam: Array, present: Array, *, k: Array, equation: Equation, smooth: bool
) -> Array:
    """Returns the losses ``(rows, 1)`` of rows ``(rows, n)`` with one target value per class."""
    if smooth:
        present = present & (x != -jnp.inf)
    x, t = choose(present, x, -jnp.inf), choose(present, t, 0.0)
    available = jnp.sum(x != -jnp.inf, axis=-1, keepdims=True, dtype=jnp.int32).astype(k.dtype)
    k = choose(k > available, available, k)  # unlike `minimum`, has derivative 1 at equality
    if smooth:
        return _loss(x, _into_polytope(t, present, k), k, lam, equation, smooth)
    loss = _loss(x, t, k, lam, equation, smooth)
    loss = loss + lam * _powers(t, equation.p) / equation.p
    # In the polytope the loss is not negative; a negative value comes from the rounding of R(t).
    return choose((k == row_sum(t)) & (loss < 0), loss - lax.stop_gradient(loss), loss)


def _mixture_of_rows(x: Array, t: Array, lam: Array, present: Array, *, weights: Array, **options: Any) -> Array:
    """Returns the losses ``(rows, 1)`` of rows ``(rows, n)``, mixed over ``k``."""

    def loss(k: Array) -> Array:
        return loss_of_rows(x, t, lam, present, k=jnp.broadcast_to(k, lam.shape), **options)

    losses = jax.vmap(loss)(jnp.arange(1, len(weights) + 1, dtype=x.dtype))
    # With weight 0 even an infinite loss counts as 0.
    losses = choose((weights[:, None, None] == 0) & jnp.isinf(losses), 0.0, losses)
    return jnp.tensordot(weights.astype(x.dtype), losses, axes=1, precision="highest")


def is_class(labels: Array, n: int) -> Array:
    """Returns the one-hot encoding of labels ``(rows, 1)`` as booleans ``(rows, n)``."""
    return lax.broadcasted_iota(labels.dtype, (labels.shape[0], n), 1) == labels


def _powers(y: Array, p: float) -> Array:
    positive = y > 0
    return row_sum(choose(positive, choose(positive, y, 1.0) ** p, 0.0))


def regularisation(y: Array, p: float) -> Array:
    """Returns ``R(y) / lam = ||y||_p^p / p`` of non-negative rows, ``(rows, 1)``."""
    return _powers(y, p) / p


def _into_polytope(t: Array, present: Array, k: Array) -> Array:
    """Returns targets moved into the polytope: they sum to ``k`` and lie in [0, 1]."""
    positives, negatives = row_sum(t), row_sum(choose(present, 1.0 - t, 0.0))
    share = choose(negatives > 0, (k - positives) / choose(negatives > 0, negatives, 1.0), 0.0)
    scale = k / choose(positives > 0, positives, 1.0)
    return choose(present, choose(positives <= k, t + share * (1.0 - t), scale * t), 0.0)


def _mask_and_threshold(x: Array, k: Array, lam: Array, equation: Equation) -> tuple[Array, TwoFloat]:
    """Returns the mask and its threshold: if none is partly selected, the least selected logit minus ``lam``."""
    (s,), gamma, (mask,) = select_topk((x,), k, lam, equation)
    z = jax.lax.stop_gradient(mask)
    most = jnp.max(s, axis=-1, keepdims=True)
    most = choose(most > -jnp.inf, most, 0.0)
    some = jnp.any(z > 0, axis=-1, keepdims=True)
    least = choose(some, jnp.min(choose(z > 0, s, jnp.inf), axis=-1, keepdims=True), most)
    partly = jnp.any((z > 0) & (z < 1), axis=-1, keepdims=True) & (lam > 0)
    return mask, select(partly, gamma, shift(TwoFloat(least, jnp.zeros_like(least)), choose(some, -lam, 0.0)))


# Beside an infinite logit, units in the last place (relative to k) by which a target may miss the mask.
_TOLERANCE = 64

# The number of terms of the binomial series: 0.1 to this power is below the resolution of float64.
_TERMS = 17


def _divergence(t: Array, y: Array, power: Array, p: float) -> Array:
    """Returns the Bregman divergence of ``|.|^p / p``, ``t^p / p + y^p / q - t y^(p - 1) >= 0``.

    ``power`` is ``y^(p - 1)``, which for ``p`` near 1 is far from 0 even if ``y`` underflows.
    """
    if p == 2:
        return 0.5 * jnp.square(t - y)
    positive = y > float(jnp.finfo(y.dtype).tiny) ** 0.5
    base = choose(positive, y, 1.0)
    u = (t - base) / base
    near = jnp.abs(u) < 0.1
    # Near u = 0, where the closed form cancels: the sum over j >= 2 of binomial(p, j) u^j / p.
    series = jnp.zeros_like(u)
    for j in range(_TERMS, 1, -1):
        binomial = float(np.prod([(p - i) / (i + 1) for i in range(j)]))
        series = binomial + choose(near, u, 0.0) * series
    closed = jnp.maximum(1.0 + u, 0.0) ** p - 1.0 - p * u
    bend = choose(near, jnp.square(u) * series, closed) / p
    faint = jnp.maximum(t, 0.0) ** p / p + ((1.0 - 1.0 / p) * y - t) * power
    return choose(positive, base**p * bend, jnp.maximum(faint, 0.0))


def _loss(x: Array, t: Array, k: Array, lam: Array, equation: Equation, smooth: bool) -> Array:
    """Returns the losses ``(rows, 1)`` of rows ``(rows, n)``, in which absent classes are ``-inf``.

    With ``v`` the minimiser in ``f_R`` (Proposition 2), the loss is the sum of two Fenchel-Young losses: that of ``R``
    at ``x - v``, which is ``lam`` times a Bregman divergence, and that of the hard mask at ``v``, which penalises
    selected classes with a target below 1 and other classes with a positive target.
    """
    p, largest = equation.p, float(jnp.finfo(x.dtype).max)
    infinite = x == jnp.inf
    number = jnp.sum(infinite, axis=-1, keepdims=True, dtype=jnp.int32).astype(k.dtype)
    # Infinite logits tie, and lead the others by so much that none competes with them.
    most = jnp.max(choose(infinite, -jnp.inf, x), axis=-1, keepdims=True)
    most = choose(most > -jnp.inf, most, 0.0)
    ahead = jnp.minimum(most + jnp.abs(most) + lam + 1.0, largest)
    s = choose(infinite, lax.stop_gradient(ahead), x)
    y, gamma = _mask_and_threshold(s, k, lam, equation)
    above = difference(TwoFloat(s, jnp.zeros_like(s)), gamma)  # -inf where absent
    missing = choose(t == 1, 0.0, (1.0 - t) * jnp.maximum(above - lam, 0.0))
    misplaced = choose(t == 0, 0.0, t * jnp.maximum(-above, 0.0))
    power = jnp.clip(above / choose(lam > 0, lam, 1.0), 0.0, 1.0)
    loss = row_sum(lam * _divergence(t, y, power, p) + missing + misplaced)
    surplus = jnp.zeros_like(k) if smooth else k - row_sum(t)
    # How much more the mask selects of infinite logits than the target does.
    unmet = choose(k > number, row_sum(choose(infinite, 1.0 - t, 0.0)), row_sum(choose(infinite, 0.0, t)) + surplus)
    tolerance = _TOLERANCE * jnp.finfo(x.dtype).eps * jnp.maximum(k, 1.0)
    diverges = (number > 0) & (jnp.abs(unmet) > tolerance)
    loss = loss + choose(diverges, jnp.sign(unmet) * jnp.inf, 0.0)

    if smooth:
        positive = t > 0
        slope = choose(positive, lam * choose(positive, t, 1.0) ** (p - 1.0), 0.0)
        slope_in_t = choose(x > -jnp.inf, slope - choose(x > -jnp.inf, above, 0.0), 0.0)
        return envelope(loss, (x, lam, t), (y - t, regularisation(t, p) - regularisation(y, p), slope_in_t))
    loss = loss + surplus * gamma.hi + surplus * gamma.lo - lam * regularisation(t, p)
    _, change = marginal_change(s, lax.stop_gradient(y), k, p)
    slope_in_k = choose((number > 0) & (k <= number), largest, gamma.hi + gamma.lo - (p - 1.0) * lam * change)
    slope_in_t = choose(x > -jnp.inf, -x, 0.0)
    return envelope(loss, (x, k, lam, t), (y - t, slope_in_k, -regularisation(y, p), slope_in_t))
