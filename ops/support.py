"""The strength ``lam`` of the relaxation at which a given number of entries is not 0."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from .arithmetic import choose, row_sum
from .interface import FULL_PRECISION_ROWS, STRONGEST, UP_TO_N, WHOLE_UP_TO_N, Axis, check_flag, check_p, known, rowwise
from .topk import hard_topk_mask


def lam_of_support(
    x: ArrayLike,
    k: ArrayLike,
    support: ArrayLike,
    *,
    in_magnitude: bool = False,
    p: float = 2.0,
    axis: Axis = -1,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the largest ``lam`` at which ``topk_mask`` or ``topk_mag`` has at most ``support`` non-zero entries.

    A schedule of ``support`` says how many entries get a gradient, and ``lam`` need not be tuned. At this ``lam`` the
    threshold ``gamma`` of Proposition 2 of Sander et al. (2023) is the first entry left out. Entries ``s`` above it
    have the mask ``((s - gamma) / lam)^(1 / (p - 1)) / phi'(gamma)``, at most 1, and the masks sum to ``k``. This
    equation is concave and piecewise linear in ``lam^(-1 / (p - 1))``; Newton's method from below takes at most as many
    steps as entries become fully selected. Ties may make the support smaller, and rounding may add one entry.

    Args:
      x: real array, any shape. Entries equal to ``-inf`` count as absent; a NaN or ``+inf`` makes its row NaN.
      k: how much is selected, in [0, n], ``n`` the size of ``x`` along ``axis``; one number, or one per row.
      support: how many entries may be non-zero, a whole number in [0, n]; shape as ``k``.
      in_magnitude: whether ``lam`` is for ``topk_mag`` (with or without ``debias``) instead of ``topk_mask``.
      p, axis, where: as in ``topk_mask``.

    Returns:
      One ``lam`` per row, float32 at least, in [0, 1e32], in the units of the operator's ``lam``. It is 1e32 if every
      ``lam`` qualifies, because no entry (in magnitude: no non-zero one) is left out, and otherwise 0, the hard
      operator, where a traced ``support`` is below ``k``. Its derivatives are 0.

    Raises:
      ValueError: an argument known at trace time is out of range, or ``support`` is below ``k``.

    See also:
      `topk_mask` and `topk_mag`, which take this ``lam``; `soft_topk` for buffers that the support has to fit.

    >>> lam_of_support([1.0, 3.0, 2.5, 2.0], 2, support=3)
    Array(2.25, dtype=float32)
    """
    per_row = {"k": (k, UP_TO_N), "support": (support, WHOLE_UP_TO_N)}
    lam = rowwise(
        _lam_of_support,
        x,
        axis=axis,
        per_row=per_row,
        where=where,
        returns=FULL_PRECISION_ROWS,
        in_magnitude=check_flag("in_magnitude", in_magnitude),
        p=check_p(p),
    )
    if known(k) and known(support) and np.any(few := np.asarray(support) < np.asarray(k)):
        least, most = (np.broadcast_to(value, few.shape)[few][0] for value in (support, k))
        raise ValueError(f"support must be at least k, got support={least:g} with k={most:g}")
    return lam if np.size(x) else jnp.full_like(lam, STRONGEST)


def _lam_of_support(
    x: Array, *, k: Array, support: Array, where: Array | None = None, in_magnitude: bool, p: float
) -> Array:
    x, k = lax.stop_gradient((x, k))
    present = x != -jnp.inf if where is None else where & (x != -jnp.inf)
    s = choose(present, jnp.abs(x) if in_magnitude else x, -jnp.inf)
    largest = jnp.max(s, axis=-1, keepdims=True)
    left_out = jnp.max(choose(hard_topk_mask(s, support[:, 0]) > 0, -jnp.inf, s), axis=-1, keepdims=True)
    none_left_out = left_out == -jnp.inf
    gamma = choose(none_left_out, largest, left_out)
    above = s > gamma
    last = largest
    if p < 2:
        last = jnp.min(choose(hard_topk_mask(s, jnp.ceil(k)[:, 0]) > 0, s, jnp.inf), axis=-1, keepdims=True)
    reach = choose(last > gamma, last - gamma, 1.0)
    # The mask of every entry relative to that of one entry, if none were fully selected. If powers overflow, this
    # entry is the last of the k largest; the scale then makes every entry whose power is cut off fully selected.
    most = float(jnp.finfo(s.dtype).max) ** (0.5 * (p - 1))
    shares = jnp.minimum(choose(above, (s - gamma) / reach, 0.0), most) ** (1 / (p - 1))
    unit = reach * gamma ** (1 - p) if in_magnitude else reach
    lam = jnp.clip(unit * _scale(shares, k) ** (1 - p), 0.0, STRONGEST)
    lam = choose(row_sum(above.astype(s.dtype)) < k, 0.0, lam)
    every_lam_qualifies = none_left_out | (k == 0)
    if in_magnitude:  # an entry that is 0 stays 0, even if it is selected
        every_lam_qualifies = every_lam_qualifies | (gamma == 0)
    return choose(largest < jnp.inf, choose(every_lam_qualifies, STRONGEST, lam), jnp.nan)


def _scale(shares: Array, k: Array) -> Array:
    """Returns per row the least ``c`` with ``sum(min(c * shares, 1)) = k``; an arbitrary number if there is none."""

    def newton(c: Array) -> Array:
        full = c * shares >= 1
        rest = row_sum(choose(full, 0.0, shares))
        candidate = (k - row_sum(full.astype(k.dtype))) / choose(rest > 0, rest, 1.0)
        return choose(rest > 0, jnp.maximum(candidate, c), c)

    def unfinished(pair: tuple[Array, Array]) -> Array:
        return jnp.any(pair[1] > pair[0])

    first = k / choose(row_sum(shares) > 0, row_sum(shares), 1.0)
    return lax.while_loop(unfinished, lambda pair: (pair[1], newton(pair[1])), (first, newton(first)))[1]
