"""Fenchel-Young losses of the relaxed top-k mask."""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ops.arguments import (
    Vanishing,
    check_axis,
    check_choice,
    check_p,
    check_range,
    check_where,
    floating,
    known,
    per_row,
    which_vanish,
    working_dtype,
)
from ops.envelope import envelope
from ops.equation import Equation, position, selection
from ops.hard import hard_selection
from ops.layout import as_rows, batch_shape
from ops.threshold import threshold
from ops.twofloat import TwoFloat, difference, select, shift

Target = Literal["one_hot", "smooth"]
TARGETS: tuple[str, ...] = ("one_hot", "smooth")


def topk_fenchel_young_loss(
    logits: ArrayLike,
    targets: ArrayLike,
    k: ArrayLike,
    *,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    target: Target = "one_hot",
    axis: int = -1,
    where: ArrayLike | None = None,
) -> Array:
    """Top-k loss ``f_R(x, 1_k) - <x, t>`` of every example (Section 6 of Sander et al., 2023).

    ``f_R(x, 1_k)`` is ``relaxed_topk_value`` with ``phi(x) = x``. Convex in the logits ``x``, with the gradient
    ``topk_mask(x, k) - t``.

    - ``target="one_hot"`` takes the targets as they are, as the paper does. For ``k > 1`` a one-hot ``t`` lies outside
      the polytope ``0 <= y <= 1, sum(y) = k``: the gradient sums to ``k - 1``, and the loss falls without bound as a
      common shift takes all logits down.
    - ``target="smooth"`` moves them into the polytope: ``m`` positives among ``n`` classes become
      ``t + (k - m) / (n - m) * (1 - t)``, or ``t * k / m`` if ``m > k``; and ``R(t)`` is added. This is a Fenchel-Young
      loss proper (Blondel et al., 2020): at least 0, 0 (up to rounding of the target) where the mask equals the target,
      and indifferent to common shifts.

    It is computed as a sum of terms that are not negative, besides ``(k - m)`` times the threshold and ``-R(t)`` for
    ``"one_hot"``: without cancellation, however large the logits or small the loss.

    Args:
      logits: real array, any shape; ``n`` is its size along ``axis``. A class with ``-inf`` gets no gradient. It costs
        nothing where its target is 0; where that is not, the ``one_hot`` loss is ``inf``, and the ``smooth`` one takes
        the class as absent.
      targets: integer labels in ``[0, n)``, of the shape of ``logits`` without ``axis``; or one value per class, 0 or 1
        (one-hot, multi-hot) or between, of the shape of ``logits``.
      k: how many classes the mask selects: a real number in ``[0, n]``; one number, or one per example. At most as many
        as take part.
      lam: strength of the relaxation, >= 0 and finite, in the units of the logits; shape as ``k``.
      p: exponent of the regularisation, a Python number in (1, 2].
      target: ``"one_hot"`` or ``"smooth"``.
      axis: the axis of the classes.
      where: boolean array, broadcasting against ``logits``: classes that take part.

    Returns:
      One loss per example: the shape of ``logits`` without ``axis``, and their dtype (integers are promoted to float).
      Computed in float32 at least.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.
    """
    check_choice("target", target, TARGETS)
    logits = floating(logits, "logits")
    p = check_p(p)
    axis = check_axis(axis, logits.ndim)
    n = logits.shape[axis]
    check_range("k", k, 0, n, f"in [0, {n}], the size along axis {axis}")
    check_range("lam", lam, 0, float(jnp.finfo(jnp.float32).max), "finite and >= 0")
    dtype = working_dtype(logits.dtype)
    scores = _per_class(targets, logits.shape, axis).astype(dtype)
    if where is not None:
        where = check_where(where, logits.shape)
    batch = batch_shape(logits, axis)
    if logits.size == 0:
        return jnp.zeros(batch, logits.dtype)
    return _compiled(
        logits,
        scores,
        per_row("k", k, batch, dtype),
        per_row("lam", lam, batch, dtype),
        where,
        p=p,
        smooth=target == "smooth",
        axis=axis,
        zero=which_vanish(lam),
    )


def topk_fenchel_young_mixture(
    logits: ArrayLike,
    targets: ArrayLike,
    weights: ArrayLike,
    *,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    target: Target = "one_hot",
    axis: int = -1,
    where: ArrayLike | None = None,
) -> Array:
    """``sum_k weights_k * loss_k`` for ``k = 1, ..., K``: a loss for several top-k accuracies at once.

    Losses are mixed over ``k`` as by Petersen et al. (2022). Takes ``K`` times the memory of one.

    Args:
      logits: as in ``topk_fenchel_young_loss``.
      targets: as in ``topk_fenchel_young_loss``.
      weights: shape ``(K,)``, ``1 <= K <= n``, non-negative.
      lam: as in ``topk_fenchel_young_loss``.
      p: as in ``topk_fenchel_young_loss``.
      target: as in ``topk_fenchel_young_loss``.
      axis: as in ``topk_fenchel_young_loss``.
      where: as in ``topk_fenchel_young_loss``.

    Returns:
      One loss per example, as ``topk_fenchel_young_loss``.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.
    """
    logits = floating(logits, "logits")
    axis = check_axis(axis, logits.ndim)
    n = logits.shape[axis]
    weights = jnp.asarray(weights)
    if weights.ndim != 1 or not 1 <= weights.size <= n:
        raise ValueError(f"weights must have shape (K,) with K in [1, {n}], got shape {weights.shape}")
    check_range("weights", weights, 0, float(jnp.finfo(jnp.float32).max), "finite and >= 0")
    dtype = working_dtype(logits.dtype)
    scores = _per_class(targets, logits.shape, axis)
    if where is not None:
        where = check_where(where, logits.shape)

    def loss(k: Array) -> Array:
        working = logits.astype(dtype)
        return topk_fenchel_young_loss(working, scores, k, lam=lam, p=p, target=target, axis=axis, where=where)

    losses = jax.vmap(loss)(jnp.arange(1, weights.size + 1, dtype=dtype))
    return jnp.tensordot(weights.astype(dtype), losses, axes=1).astype(logits.dtype)


def _per_class(targets: ArrayLike, shape: tuple[int, ...], axis: int) -> Array:
    """One value per class, from labels too."""
    targets = jnp.asarray(targets)
    batch = shape[:axis] + shape[axis + 1 :]
    if targets.shape == shape:
        check_range("targets", targets.astype(jnp.float32), 0, 1, "in [0, 1] where there is one per class")
        return targets
    if not jnp.issubdtype(targets.dtype, jnp.integer) or targets.shape != batch:
        raise ValueError(
            f"targets must be integer labels of shape {batch} or have the shape of logits, {shape}; "
            f"got {targets.dtype} of shape {targets.shape}"
        )
    if known(targets) and targets.size:
        check_range("targets", np.asarray(targets), 0, shape[axis] - 1, f"in [0, {shape[axis]}) where they are labels")
    return jax.lax.broadcasted_iota(targets.dtype, shape, axis) == jnp.expand_dims(targets, axis)


@functools.partial(jax.jit, static_argnames=("p", "smooth", "axis", "zero"))
def _compiled(
    logits: Array,
    targets: Array,
    k: Array,
    lam: Array,
    where: Array | None,
    *,
    p: float,
    smooth: bool,
    axis: int,
    zero: Vanishing,
) -> Array:
    (x, _), (t, _) = as_rows(logits, axis, k.dtype), as_rows(targets, axis, k.dtype)
    present = jnp.full(x.shape, True) if where is None else as_rows(where, axis, jnp.bool_)[0]
    if smooth:
        present = present & (x != -jnp.inf)
    x, t = jnp.where(present, x, -jnp.inf), jnp.where(present, t, 0.0)
    k = jnp.minimum(k, jnp.sum(x != -jnp.inf, axis=-1, keepdims=True, dtype=jnp.int32).astype(k.dtype))
    if smooth:
        t = _into_polytope(t, present, k)
    loss = _loss(x, t, k, lam, Equation(p), zero, smooth)
    return loss.reshape(batch_shape(logits, axis)).astype(logits.dtype)


def _total(values: Array) -> Array:
    return jnp.sum(values, axis=-1, keepdims=True)


def _into_polytope(t: Array, present: Array, k: Array) -> Array:
    """Targets that sum to ``k``, and lie in [0, 1]."""
    positives, negatives = _total(t), _total(jnp.where(present, 1.0 - t, 0.0))
    share = jnp.where(negatives > 0, (k - positives) / jnp.where(negatives > 0, negatives, 1.0), 0.0)
    scale = k / jnp.where(positives > 0, positives, 1.0)
    return jnp.where(present, jnp.where(positives <= k, t + share * (1.0 - t), scale * t), 0.0)


def _mask_and_threshold(x: Array, k: Array, lam: Array, equation: Equation, zero: Vanishing) -> tuple[Array, TwoFloat]:
    """The mask, and the value of its least selected entry once the regularisation has taken its part."""
    s = equation.keys(x)
    most = jnp.max(s, axis=-1, keepdims=True)
    most = jnp.where(most > -jnp.inf, most, 0.0)

    def least(selected: Array) -> TwoFloat:
        some = jnp.any(selected, axis=-1, keepdims=True)
        value = jnp.min(jnp.where(selected, s, jnp.inf), axis=-1, keepdims=True)
        return TwoFloat(jnp.where(some, value, most), jnp.zeros_like(value))

    def soft(lam: Array) -> tuple[Array, TwoFloat]:
        gamma = threshold((s,), k, lam, equation)
        t = jax.lax.stop_gradient(position(s, gamma, lam, equation))
        partly = jnp.any((t > 0) & (t < 1), axis=-1, keepdims=True)
        return selection(s, gamma, lam, equation), select(partly, gamma, shift(least(t >= 1), -lam))

    def hard() -> tuple[Array, TwoFloat]:
        (z,) = hard_selection((x,), k)
        return z, least(z > 0)

    if zero == "all":
        return hard()
    if zero == "none":
        return soft(lam)
    (mask, gamma), (z, value) = soft(jnp.where(lam == 0, 1.0, lam)), hard()
    return jnp.where(lam == 0, z, mask), select(lam == 0, value, gamma)


# Terms of the binomial series below: 0.1 to this power is less than the resolution of a float64.
_TERMS = 17


def _divergence(t: Array, y: Array, p: float) -> Array:
    """``t^p / p + y^p / q - t y^(p - 1)``, at least 0: Bregman's divergence of ``|.|^p / p`` from ``t`` to ``y``."""
    if p == 2:
        return 0.5 * jnp.square(t - y)
    positive = y > 0
    base = jnp.where(positive, y, 1.0)
    u = (t - base) / base
    near = jnp.abs(u) < 0.1
    # sum over j >= 2 of binomial(p, j) u^j / p, where the closed form would cancel.
    series = jnp.zeros_like(u)
    for j in range(_TERMS, 1, -1):
        binomial = float(np.prod([(p - i) / (i + 1) for i in range(j)]))
        series = binomial + jnp.where(near, u, 0.0) * series
    closed = jnp.maximum(1.0 + u, 0.0) ** p - 1.0 - p * u
    bend = jnp.where(near, jnp.square(u) * series, closed) / p
    return jnp.where(positive, base**p * bend, jnp.maximum(t, 0.0) ** p / p)


def _loss(x: Array, t: Array, k: Array, lam: Array, equation: Equation, zero: Vanishing, smooth: bool) -> Array:
    """Losses of rows ``(rows, n)``, ``-inf`` where a class is absent.

    With ``v`` the point where ``f_R`` takes its minimum (Proposition 2), the loss splits into two Fenchel-Young losses:
    that of ``R`` at ``x - v``, which is ``lam`` times a Bregman divergence, and that of the hard mask at ``v``, which
    charges selected classes for what their target lacks and the others for the target they have.
    """
    p = equation.p
    y, gamma = _mask_and_threshold(x, k, lam, equation, zero)
    s = equation.keys(x)
    above = difference(TwoFloat(s, jnp.zeros_like(s)), gamma)  # -inf where absent
    missing = jnp.where(t == 1, 0.0, (1.0 - t) * jnp.maximum(above - lam, 0.0))
    misplaced = jnp.where(t == 0, 0.0, t * jnp.maximum(-above, 0.0))
    loss = _total(lam * _divergence(t, y, p) + missing + misplaced)

    def norm(values: Array) -> Array:
        return _total(jnp.where(values > 0, jnp.where(values > 0, values, 1.0) ** p, 0.0)) / p

    if smooth:
        positive = t > 0
        regularisation = jnp.where(positive, lam * jnp.where(positive, t, 1.0) ** (p - 1.0), 0.0)
        slope_in_t = jnp.where(x > -jnp.inf, regularisation - jnp.where(x > -jnp.inf, above, 0.0), 0.0)
        return envelope(loss, (x, lam, t), (y - t, norm(t) - norm(y), slope_in_t))
    surplus = k - _total(t)
    loss = loss + surplus * gamma.hi + surplus * gamma.lo - lam * norm(t)
    slope_in_t = jnp.where(x > -jnp.inf, -x, 0.0)
    return envelope(loss, (x, k, lam, t), (y - t, gamma.hi + gamma.lo, -norm(y), slope_in_t))
