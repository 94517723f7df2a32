"""The conjugate of the top-k value functions, and the norms and entropies that follow from it."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from . import interface
from .arithmetic import choose, row_sum
from .interface import ROWS, Axis, Range, amount, floating, known, rowwise, shown
from .nonlinearities import ABS, HALF_SQUARE, IDENTITY, Nonlinearity, nonlinearity

# The tolerance of a membership in a polytope, in units in the last place; for the sum, relative to k.
_TOLERANCE = 64

_SUPPORT = Range("in (0, {n}], the size along axis {axis}", interface.TINY, share=1.0)


def topk_conjugate(
    y: ArrayLike,
    k: ArrayLike | None = None,
    *,
    density: ArrayLike | None = None,
    phi: str | Nonlinearity = "half_square",
    axis: Axis = -1,
) -> Array:
    """Returns the conjugate ``f_phi*(y, 1_k)``, the part of the operators' regularisation that makes them sparse.

    It is ``min_z sum_i z_i phi*(|y_i| / z_i)`` over ``0 <= z <= 1, sum(z) = k`` (Proposition 3 of Sander et al., 2023),
    the tightest convex relaxation of ``sum_i phi*(y_i)`` on vectors with at most ``k`` non-zero entries (Proposition
    4). For every ``phi`` the minimiser is ``z_i = min(1, |y_i| / theta)``, with one unknown ``theta``.

    - ``"half_square"``: half the squared k-support norm.
    - ``"exp"``: the k-support negentropy ``min_z sum_i y_i log(y_i / z_i)`` (Appendix B.1).
    - ``"identity"``: 0 in the capped simplex ``0 <= y <= 1, sum(y) = k``, ``inf`` outside.
    - ``"abs"``: 0 in ``|y| <= 1, sum(|y|) <= k``, the unit ball of the dual of the OWL norm, ``inf`` outside.

    Membership in these two sets is decided up to 64 units in the last place. Differentiable in ``y`` and ``k`` where
    the value is finite.

    Args:
      y: real array, any shape. Negative entries make the value ``inf`` if ``phi`` is increasing.
      k: real number in ``(0, n]``, ``n`` the size of ``y`` along ``axis``; one number, or one per row.
      density: instead of ``k``, a share of the entries along ``axis``; shape as ``k``. Then ``k`` is ``density * n``,
        rounded down, and must be at least 1 if it is known.
      phi: a ``Nonlinearity``, or its name.
      axis: the axis along which entries compete; a tuple of several, or ``None`` for all.

    Returns:
      Array of the shape of ``y`` without ``axis``, and of its dtype (integers are promoted to float). Computed in
      float32 at least.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `relaxed_topk_value` for the value conjugate to it; `k_support_norm` for the norm.

    >>> float(topk_conjugate([3.0, -4.0, 0.0], 2, phi="half_square"))
    12.5
    """
    return _conjugate_of(_conjugate, y, k, density, axis, nonlinearity(phi))


def k_support_norm(
    y: ArrayLike, k: ArrayLike | None = None, *, density: ArrayLike | None = None, axis: Axis = -1
) -> Array:
    """Returns the k-support norm (Argyriou et al., 2012): the l1 norm for ``k = 1``, the l2 norm for ``k = n``.

    It is ``sqrt(2 f_phi*(y, 1_k))`` with ``phi(x) = x^2 / 2`` (Section 4 of Sander et al., 2023), and has derivative 0
    at 0. Arguments, result and errors are as in ``topk_conjugate``.

    See also:
      `topk_conjugate` for half its square; `topk_mag` for the operator that it regularises; `owl_norm`.

    >>> float(k_support_norm([3.0, -4.0, 0.0], 2))
    5.0
    """
    return _conjugate_of(_norm, y, k, density, axis, HALF_SQUARE)


def owl_norm(x: ArrayLike, w: ArrayLike, *, axis: Axis = -1) -> Array:
    """Returns the ordered weighted lasso norm ``sum_i w_i |x|_[i]``, with magnitudes in descending order (Section 4).

    Args:
      x: real array, any shape.
      w: weights of shape ``(n,)``, ``n`` the size of ``x`` along ``axis``: non-negative and non-increasing. With
        ``1_k`` the norm is ``relaxed_topk_value(x, k, phi="abs", lam=0)``, which needs no sort.
      axis: the axis that is sorted; a tuple of several, or ``None`` for all.

    Returns:
      Array of the shape of ``x`` without ``axis``, and of its dtype (integers are promoted to float).

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `k_support_norm`; `relaxed_topk_value` for weights of a top-k, without a sort.

    >>> float(owl_norm([3.0, -4.0], [2.0, 1.0]))
    11.0
    """
    x = floating(x)
    n = interface.size_along(x.shape, interface.check_axes(axis, x.ndim))
    w = interface.check_values("w", w, Range("non-negative and non-increasing", 0))
    if w.shape != (n,):
        raise ValueError(f"w must have shape ({n},), the size of x along axis {axis}, got {w.shape}")
    if known(w) and np.any(np.diff(np.asarray(w, np.float64)) > 0):
        raise ValueError(f"w must be non-negative and non-increasing, got {shown(np.asarray(w).tolist())}")
    return rowwise(_weighted, x, axis=axis, constants={"w": w}, returns=ROWS)


def _conjugate_of(
    function, y: ArrayLike, k: ArrayLike | None, density: ArrayLike | None, axis: Axis, phi: Nonlinearity
) -> Array:
    y = floating(y, "y")
    per_row = {"k": (amount(k, density), _SUPPORT)}
    if density is not None and y.size:
        n = interface.size_along(y.shape, interface.check_axes(axis, y.ndim, "y"))
        share = interface.share_of(density, n, y.dtype)
        if known(share) and np.any(np.asarray(share) == 0):
            raise ValueError(
                f"density must be at least 1 / {n}, which is one entry along axis {axis}, got {shown(density)}"
            )
    return rowwise(function, y, axis=axis, name="y", per_row=per_row, returns=ROWS, phi=phi)


def _weighted(x: Array, *, w: Array) -> Array:
    magnitudes = jnp.sort(jnp.abs(x), axis=-1, descending=True)
    return jnp.matmul(magnitudes, w.astype(x.dtype), precision="highest")[:, None]


def _level(a: Array, k: Array) -> Array:
    """Returns per row the ``theta`` with ``sum_i min(1, a_i / theta) = k``; ``a >= 0`` has more than ``k`` non-zeros.

    If ``m`` entries are at least ``theta``, the sum of the others is ``(k - m) theta``.
    """

    s = jnp.sort(a, axis=-1, descending=True)
    rest = lax.cumsum(s, axis=1, reverse=True)
    larger = lax.broadcasted_iota(a.dtype, a.shape, 1)
    m = jnp.sum((rest <= (k - larger) * s) & (larger < k), axis=-1, keepdims=True, dtype=jnp.int32)
    return jnp.take_along_axis(rest, m, axis=1, mode="clip") / (k - m.astype(k.dtype))


def _conjugate(y: Array, k: Array, phi: Nonlinearity) -> Array:
    a = jnp.abs(y) if phi.even else y
    if phi in (IDENTITY, ABS):
        tolerance = _TOLERANCE * jnp.finfo(a.dtype).eps
        total = row_sum(a)
        inside = jnp.all((a >= -tolerance) & (a <= 1.0 + tolerance), axis=-1, keepdims=True)
        inside = inside & (total <= k * (1.0 + tolerance)) & (phi.even | (total >= k * (1.0 - tolerance)))
        unknown = jnp.any(jnp.isnan(a), axis=-1, keepdims=True)
        return choose(inside, 0.0, choose(unknown, jnp.nan, jnp.inf, total.dtype))
    outside = jnp.any((a < 0) | (a == jnp.inf), axis=-1, keepdims=True)
    unknown = jnp.any(jnp.isnan(a), axis=-1, keepdims=True)
    a = choose(outside | unknown, 0.0, jnp.maximum(a, 0.0))
    positive = jnp.sum(a > 0, axis=-1, keepdims=True, dtype=jnp.int32).astype(k.dtype)
    # At most k non-zero entries all have z = 1, and the zeros share the rest of k.
    least = lax.stop_gradient(jnp.min(choose(a > 0, a, jnp.inf), axis=-1, keepdims=True))
    few = positive <= k
    least = choose(least < jnp.inf, least, 1.0)
    theta = choose(few, least, _level(choose(few, 1.0, a), choose(few, 1.0, k)))
    full = a >= theta
    below = row_sum(choose(full, 0.0, a))
    value = row_sum(choose(full, phi.conjugate(choose(full, a, theta)), 0.0))
    value = value + choose(few, 0.0, below / theta * phi.conjugate(theta))
    value = value + choose(few, (k - positive) * phi.conjugate(jnp.zeros_like(k)), 0.0)
    return choose(unknown, jnp.nan, choose(outside, jnp.inf, value))


def _norm(y: Array, k: Array, phi: Nonlinearity) -> Array:
    largest = lax.stop_gradient(jnp.max(jnp.abs(y), axis=-1, keepdims=True))
    unit = choose((largest > 0) & (largest < jnp.inf), largest, 1.0)  # so that squares do not overflow
    squared = 2.0 * _conjugate(y / unit, k, phi)
    positive = squared > 0
    return choose(positive, unit * jnp.sqrt(choose(positive, squared, 1.0)), squared)
