"""Value functions of the relaxed top-k operators; the operators are their gradients."""

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from .arithmetic import choose, row_sum
from .gradients import envelope
from .interface import ROWS, STRENGTH, UP_TO_N, Axis, amount, check_p, rows_with_zero_lam, rowwise
from .nonlinearities import Nonlinearity, nonlinearity
from .scalar.equation import Equation
from .scalar.magnitude import in_units, magnitude_from
from .scalar.mask import marginal_change, mask_from, select_topk
from .scalar.shrinkage import before_slope
from .scalar.threshold import remainder


def relaxed_topk_value(
    x: ArrayLike,
    k: ArrayLike | None = None,
    *,
    density: ArrayLike | None = None,
    phi: str | Nonlinearity = "identity",
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    axis: Axis = -1,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the optimal value that ``relaxed_topk`` is the gradient of, per row.

    It is ``f_{phi,R}(x, 1_k) = max_y <x, y> - f_phi*(y, 1_k) - lam / p * ||y||_p^p``, computed from the dual
    ``min_u R*(x - u) + f_phi(u, 1_k)`` (Proposition 2 of Sander et al., 2023). For ``lam = 0`` it is ``f_phi(x, 1_k)``,
    the sum of the ``k`` largest ``phi(x_i)`` (Proposition 1); for a fractional ``k`` the next counts with the rest.

    The value is convex in ``x``. Its derivative in ``lam`` is ``-||y||_p^p / p``, and that in ``k`` is ``phi`` of the
    ``k``-th largest entry of ``u``; at a kink the left one is given. Differentiable to any order, forwards and
    backwards. Arguments are as in ``relaxed_topk``. An infinite entry that takes part
    makes the value ``inf``, unless ``k`` is 0.

    Returns:
      Array of the shape of ``x`` without ``axis``, and of its dtype (integers are promoted to float). Computed in
      float32 at least.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `relaxed_topk` for its gradient; `topk_conjugate` for the regulariser; `topk_fenchel_young_loss` for a loss made
      of it.

    >>> float(relaxed_topk_value([1.0, 3.0, 2.0], 2, lam=1.0))
    4.0
    """
    return rowwise(
        _values,
        x,
        axis=axis,
        per_row={"k": (amount(k, density), UP_TO_N), "lam": (lam, STRENGTH)},
        where=where,
        returns=ROWS,
        equation=Equation(check_p(p), nonlinearity(phi), zero=rows_with_zero_lam(lam)),
    )


def _values(x: Array, k: Array, lam: Array, where: Array | None = None, *, equation: Equation) -> Array:
    """Returns the values ``(rows, 1)`` of rows ``(rows, n)``.

    Up to signs the solution of Proposition 2 is ``y = z * phi'(v)``, with ``z`` the selected share of an entry, and
    ``v = s - lam * |y| ** (p - 1)`` its key in the dual solution ``u``. Entries selected in part have ``v = gamma``.
    """
    phi, p = equation.phi, equation.p
    present = jnp.full(x.shape, True) if where is None else where
    if not phi.even:
        present = present & (x != -jnp.inf)
    x = choose(present, x, 0.0 if phi.even else -jnp.inf)
    size = jnp.sum(present, axis=-1, keepdims=True, dtype=jnp.int32)
    (scaled,), strength, unit = in_units((x,), lam, equation, squared=True)
    s = equation.keys(scaled, strength)
    selected = select_topk((scaled,), k, strength, equation, (present,))
    (keys,), threshold, (part,) = selected
    z = lax.stop_gradient(part)
    (y,) = (mask_from if equation.linear else magnitude_from)(selected, (scaled,), k, strength, equation)
    gamma = threshold.hi + threshold.lo
    v = choose(z == 1, before_slope(keys, z, strength, equation), choose(z == 0, keys, gamma))
    full, partly = z == 1, (z > 0) & (z < 1)

    def total(values: Array, condition: Array) -> Array:
        return row_sum(choose(condition, values, 0.0))

    def share(weight: Array, point: Array) -> Array:
        return choose(weight == 0, 0.0, weight * phi.value(point))  # phi may overflow where nothing is selected

    # The pooled block gets what fully selected entries leave of k. For an even phi, entries with u = 0 get what the
    # block leaves.
    saturated, nothing = k > size.astype(k.dtype), size == 0
    wanted = choose(saturated, size.astype(k.dtype), k)
    rest = remainder(wanted, jnp.sum(full, axis=-1, keepdims=True, dtype=jnp.int32))
    boundary = _least_selected(s, k, strength, z, v, gamma)
    if phi.even:
        pooled = total(z, partly)
        boundary = choose((pooled == 0) & (rest > 0), 0.0, boundary)
        block = share(pooled, boundary) + share(rest - pooled, jnp.zeros_like(rest))
    else:
        block = share(rest, boundary)
    largest = jnp.finfo(x.dtype).max  # replaces overflow, so that its product with a lam or tangent of 0 is 0
    size = jnp.abs(y)
    power = choose(y == 0, 1.0, size) ** (p - 1.0)
    norm = total((power * unit ** (p - 1.0)) * (size * unit), y != 0)  # of x as it is given: in units it may overflow
    # lam * y ** (p - 1), or s - v, which it equals, where y is too small to be accurate.
    moved = jnp.minimum(strength * power, choose(size > 4.0 * jnp.finfo(x.dtype).tiny, largest, s - v))
    penalty = total(moved * size, y != 0)  # as lam * norm, which may underflow before
    value = total(phi.value(choose(full, v, boundary)), full) + block + (1.0 - 1.0 / p) * penalty
    # Where nothing is selected in part, the boundary has a derivative in k that it does not show.
    first, change = marginal_change(keys, z, k, p)
    still = lax.stop_gradient(boundary)
    still = choose(jnp.isfinite(equation.width(still, strength)), still, 0.0)  # phi' may overflow
    falls = (p - 1.0) * equation.width(still, strength)
    falls = falls / (1.0 + equation.width_slope(still, choose(first, 0.0, strength)))
    slope_in_k = choose(saturated | nothing, 0.0, phi.value(boundary - falls * change))
    in_k = slope_in_k * unit * unit
    slopes = y * unit, jnp.minimum(in_k, largest), -jnp.minimum(norm, largest) / p
    value = value * unit * unit
    unbounded = total(equation.unsigned(x), present & ~jnp.isfinite(x)) == jnp.inf  # false in a row with a NaN
    value = choose(unbounded & (lam >= 0), choose(k > 0, jnp.inf, k), value)
    return envelope(value, (x, k, lam), slopes)


def _least_selected(s: Array, k: Array, lam: Array, z: Array, v: Array, gamma: Array) -> Array:
    """Returns the ``v`` of the ``k``-th largest entry per row, or the threshold if all selected shares underflow.

    That entry is the least one selected, or the largest of all if none is selected.
    """
    selected = z > 0
    some = jnp.any(selected, axis=-1, keepdims=True)
    least = jnp.min(choose(selected, v, jnp.inf), axis=-1, keepdims=True)
    most = jnp.max(s, axis=-1, keepdims=True)
    first = choose((k > 0) & (lam > 0), jnp.minimum(gamma, most), most)
    return choose(some, least, choose(most > -jnp.inf, first, 0.0))
