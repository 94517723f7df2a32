"""The scalar equation behind the relaxed top-k operators, and its derivative.

With ``w = 1_k`` the isotonic problem of the paper (equation 5) has at most one pooled block, and the whole operator
reduces to one unknown per row, the value ``gamma`` of that block:

    z_i(gamma) = clip((s_i - gamma) / width(gamma), 0, 1) ** (1 / (p - 1)),        sum_i z_i(gamma) = k,

where ``width(gamma) = lam * phi'(gamma) ** (p - 1)``: ``lam`` for the mask (``phi(x) = x``), and
``lam * gamma ** (p - 1)`` for the magnitude operator (``phi(x) = x ** 2 / 2``, ``s = |x|``). The left side decreases
in ``gamma``. No sort, no pooling, no n-by-n matrix: a few passes over the data.

Shapes: entries come as a tuple of arrays that share one equation per row, so that a pytree (or a vector split over
devices) needs no concatenation. With ``Rows(axis=-1)`` every array is ``(rows, n)`` and one scalar per row is
``(rows, 1)``; with ``Rows(axis=None)`` the arrays have any shape and there is a single row, of shape ``()``.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array, lax

from ops.powers import dual_exponent, power
from ops.rootfinding import Evaluation, find_root
from ops.shrinkage import shrink
from ops.twofloat import TwoFloat

Nonlinearity = Literal["identity", "half_square"]

# Entries looked at per row to guess where the root lies: a guess only, so a few hundred do.
_SAMPLE = 256
# On a CPU rows are solved in blocks of about this many entries, which stay in cache from one pass to the next.
_BLOCK_ENTRIES = 16384


@dataclasses.dataclass(frozen=True)
class Rows:
    """How one scalar per row is reduced from the entries.

    Attributes:
      axis: -1 for arrays of shape ``(rows, n)``, ``None`` where all entries of all arrays form one row.
      axis_name: mesh axis (or axes) over which rows are split, as in ``jax.lax.psum``; ``None`` if they are not.
    """

    axis: int | None = -1
    axis_name: str | tuple[str, ...] | None = None

    def sum(self, function: Callable[[Array], Array], entries: tuple[Array, ...]) -> Array:
        """Sum of ``function`` over the entries of each row."""
        total = functools.reduce(
            jnp.add, [jnp.sum(function(s), axis=self.axis, keepdims=self.axis is not None) for s in entries]
        )
        return total if self.axis_name is None else lax.psum(total, self.axis_name)

    def max(self, function: Callable[[Array], Array], entries: tuple[Array, ...]) -> Array:
        """Maximum of ``function`` over the entries of each row."""
        best = functools.reduce(
            jnp.maximum, [jnp.max(function(s), axis=self.axis, keepdims=self.axis is not None) for s in entries]
        )
        return best if self.axis_name is None else lax.pmax(best, self.axis_name)


@dataclasses.dataclass(frozen=True)
class Equation:
    """The static part of the scalar equation: exponent, nonlinearity, and how rows are reduced."""

    p: float
    phi: Nonlinearity = "identity"
    rows: Rows = Rows()

    @property
    def exponent(self) -> float:
        """``1 / (p - 1)``."""
        return dual_exponent(self.p)

    def width(self, gamma: Array, lam: Array) -> Array:
        """``lam * phi'(gamma) ** (p - 1)``: entries between ``gamma`` and ``gamma + width`` are partly selected."""
        if self.phi == "identity":
            return lam + jnp.zeros_like(gamma)
        if self.p == 2:
            return lam * gamma
        # gamma = 0 (nothing left to select from) has an infinite slope, and no entry that could feel it.
        positive = gamma > 0
        return jnp.where(positive, lam * jnp.where(positive, gamma, 1.0) ** (self.p - 1.0), 0.0)

    def width_slope(self, gamma: Array, lam: Array) -> Array:
        """Derivative of ``width`` in ``gamma``."""
        if self.phi == "identity":
            return jnp.zeros_like(gamma)
        if self.p == 2:
            return lam + jnp.zeros_like(gamma)
        positive = gamma > 0
        return jnp.where(positive, lam * (self.p - 1.0) * jnp.where(positive, gamma, 1.0) ** (self.p - 2.0), 0.0)


def _inverse(width: Array) -> Array:
    # Kept finite: 0 * finite is 0 on the threshold, where 0 / 0 would be NaN.
    limits = jnp.finfo(width.dtype)
    return jnp.minimum(1.0 / jnp.maximum(width, limits.tiny), limits.max)


@jax.custom_jvp
def position(s: Array, gamma: TwoFloat, width: Array) -> Array:
    """``(s - gamma) / width``: at most 0 where an entry is not selected, at least 1 where it is fully selected."""
    return ((s - gamma.hi) - gamma.lo) * _inverse(width)


@position.defjvp
def _position_jvp(primals, tangents):
    # Written out because the derivative of 1 / width squares it, which overflows for narrow widths.
    s, gamma, width = primals
    s_dot, gamma_dot, width_dot = tangents
    t = position(s, gamma, width)
    return t, (s_dot - gamma_dot.hi - gamma_dot.lo - t * width_dot) * _inverse(width)


def partly(t: Array) -> Array:
    """The active set: entries strictly between unselected and fully selected."""
    return (t > 0) & (t < 1)


def _active(s: Array, gamma: TwoFloat, width: Array) -> tuple[Array, Array]:
    """The active set, and ``t`` on it (elsewhere some value in (0, 1), so that no derivative is lost to NaN)."""
    active = partly(lax.stop_gradient(position(s, gamma, width)))
    t = position(jnp.where(active, s, gamma.hi), gamma, width)
    return active, jnp.where(active, t, 0.5)


def selection(s: Array, gamma: TwoFloat, lam: Array, equation: Equation) -> Array:
    """``z_i(gamma)``: exactly 0, exactly 1, or strictly between; same shape as ``s``. Differentiable."""
    width = equation.width(gamma.hi + gamma.lo, lam)
    outside = lax.stop_gradient(position(s, gamma, width))
    active, t = _active(s, gamma, width)
    return jnp.where(active, power(t, equation.exponent), jnp.clip(outside, 0.0, 1.0))


def _sums(entries: tuple[Array, ...], gamma: TwoFloat, width: Array, equation: Equation) -> tuple[Array, Array, Array]:
    """Count of fully selected entries (int32), and over the active set the sums of ``z`` and of ``dz/dt / exponent``."""
    exponent, rows = equation.exponent, equation.rows

    def full(s: Array) -> Array:
        return (position(s, gamma, width) >= 1).astype(jnp.int32)

    def partial(s: Array) -> Array:
        t = position(s, gamma, width)
        # A NaN belongs to no set of entries; it must reach the sum all the same, to mark its row.
        return jnp.where(partly(t) | jnp.isnan(t), power(t, exponent), 0.0)

    def weight(s: Array) -> Array:
        t = position(s, gamma, width)
        return jnp.where(partly(t), power(t, exponent - 1), 0.0)

    return rows.sum(full, entries), rows.sum(partial, entries), rows.sum(weight, entries)


def remainder(k: Array, count: Array) -> Array:
    """``k - count`` for an integer ``count``, exact also where a float does not hold every integer any more."""
    whole = jnp.floor(k)
    # NaN has no integer part: it must come out again through the fraction.
    steps = jnp.where(jnp.isnan(k), 0.0, whole).astype(count.dtype) - count
    return steps.astype(k.dtype) + (k - whole)


def _evaluate(entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation, gamma: TwoFloat) -> Evaluation:
    value = gamma.hi + gamma.lo
    width = equation.width(value, lam)
    full, partial, weight = _sums(entries, gamma, width, equation)
    rest = remainder(k, full)  # what the active set has to add up to
    excess = partial - rest
    exponent = equation.exponent
    slope = exponent * (weight + equation.width_slope(value, lam) * partial) / width
    # Newton on partial ** (1 / exponent), which is nearly linear in gamma where partial itself is nearly a power.
    if exponent == 1:
        change = excess
    else:
        target = partial ** (1.0 - 1.0 / exponent) * jnp.maximum(rest, 0.0) ** (1.0 / exponent)
        change = exponent * (partial - target)
    step = change / slope
    if equation.phi == "half_square":
        step = step / (1.0 - step / value)  # in 1 / gamma, in which the equation is linear for p = 2
    eps = jnp.finfo(k.dtype).eps
    return Evaluation(
        excess=excess,
        step=step,
        trusted=jnp.isfinite(step) & (jnp.abs(excess) <= slope * width),
        converged=jnp.abs(excess) <= 4 * eps * jnp.maximum(partial, jnp.minimum(k, 1.0)),
        resolution=0.25 * eps * width,
    )


def _usable(s: Array, equation: Equation) -> Array:
    """Entries that can be selected at all."""
    return s > 0 if equation.phi == "half_square" else s > -jnp.inf


def guess(
    entries: tuple[Array, ...], k: Array, available: Array, lam: Array, equation: Equation
) -> tuple[Array, Array]:
    """Where the root would lie for Gaussian entries, and how dense entries would be there.

    ``clip(t, 0, 1) ** (1 / (p - 1))`` is the distribution function of ``U ** (p - 1)``, ``U`` uniform, so the
    equation says that ``gamma`` is a quantile of ``s - width * U ** (p - 1)``: of a variable whose mean and variance
    follow from those of ``s``.
    """
    rows, p = equation.rows, equation.p
    if rows.axis is not None:
        entries = tuple(s[:, :: max(1, s.shape[1] // _SAMPLE)] for s in entries)

    def usable(s: Array) -> Array:
        return _usable(s, equation) & (s < jnp.inf)

    largest = rows.max(lambda s: jnp.where(usable(s), jnp.abs(s), 0.0), entries)
    unit = jnp.where(largest > 0, largest, 1.0)  # the moments are taken of s / unit, so as not to overflow
    count = jnp.maximum(rows.sum(lambda s: usable(s).astype(unit.dtype), entries), 1.0)
    mean = rows.sum(lambda s: jnp.where(usable(s), s / unit, 0.0), entries) / count
    spread = rows.sum(lambda s: jnp.where(usable(s), jnp.square(s / unit - mean), 0.0), entries) / count

    relative = jnp.clip(k / jnp.maximum(available, 1.0), 1e-6, 1 - 1e-6)
    quantile = jax.scipy.special.ndtri(1.0 - relative)
    if equation.phi == "identity":
        share = lam / unit
        deviation = jnp.sqrt(spread + jnp.square(share) * (1.0 / (2.0 * p - 1.0) - 1.0 / p**2))
        start = mean - share / p + deviation * quantile
    else:
        deviation = jnp.sqrt(spread)
        top = jnp.maximum(mean + deviation * quantile, 0.1 * mean)
        start = shrink(top, lam / p * unit ** (p - 2.0), p)
    density = available * jnp.exp(-0.5 * jnp.square(quantile)) / jnp.sqrt(2 * jnp.pi) / (deviation * unit)
    return start * unit, density


def _solve(entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation) -> TwoFloat:
    limits = jnp.finfo(k.dtype)
    # +inf ties with the largest number there is, so that differences stay defined.
    entries = tuple(jnp.minimum(s, limits.max) for s in entries)
    available = equation.rows.sum(lambda s: _usable(s, equation).astype(jnp.int32), entries).astype(k.dtype)
    k = jnp.minimum(k, available)
    start, density = guess(entries, k, available, lam, equation)
    return find_root(
        functools.partial(_evaluate, entries, k, lam, equation),
        start,
        density,
        lower=limits.tiny if equation.phi == "half_square" else limits.min,
        upper=limits.max,
    ).point


def solve_rows(
    solve: Callable[[tuple[Array, ...], Array, Array], TwoFloat],
    entries: tuple[Array, ...],
    k: Array,
    lam: Array,
    rows: Rows,
) -> TwoFloat:
    """Applies ``solve`` to all rows at once, or on a CPU to a few at a time.

    A block of rows is then read from cache on every pass but the first, and a row that takes long holds up only its
    own block.
    """
    if rows != Rows():
        return solve(entries, k, lam)
    (s,) = entries
    count, n = s.shape
    size = max(1, _BLOCK_ENTRIES // n)
    blocks = -(-count // size)
    if blocks == 1:
        return solve(entries, k, lam)

    def in_blocks(s: Array, k: Array, lam: Array) -> TwoFloat:
        def split(value: Array, fill: float) -> Array:
            padded = jnp.pad(value, ((0, blocks * size - count), (0, 0)), constant_values=fill)
            return padded.reshape(blocks, size, -1)

        gamma = lax.map(
            lambda block: solve((block[0],), block[1], block[2]), (split(s, -jnp.inf), split(k, 0.0), split(lam, 1.0))
        )
        return TwoFloat(gamma.hi.reshape(-1, 1)[:count], gamma.lo.reshape(-1, 1)[:count])

    def at_once(s: Array, k: Array, lam: Array) -> TwoFloat:
        return solve((s,), k, lam)

    return lax.platform_dependent(s, k, lam, cpu=in_blocks, default=at_once)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def threshold(entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation) -> TwoFloat:
    """The root ``gamma`` of the scalar equation, one per row.

    Args:
      entries: floating arrays laid out as ``equation.rows`` says, all of the dtype of ``k``. For ``half_square``
        they are non-negative. Entries equal to ``-inf`` are never selected.
      k: how much is selected in total, one value per row, >= 0; more than there are entries selects them all.
      lam: strength of the regularisation, one value per row; 0 is taken as the smallest positive number.
      equation: exponent, nonlinearity and layout.

    Returns:
      One value per row. ``hi`` is a constant to differentiation and ``lo`` carries the derivative. A row with a NaN
      among its entries, or a NaN ``k`` or ``lam``, gets NaN.
    """
    return solve_rows(functools.partial(_solve, equation=equation), entries, k, lam, equation.rows)


@functools.partial(threshold.defjvp, symbolic_zeros=True)
def _threshold_jvp(equation, primals, tangents):
    """Implicit function theorem on the scalar equation: Proposition 7 for the one block there is."""
    entries, k, lam = primals
    entries_dot, k_dot, lam_dot = tangents
    gamma = threshold(entries, k, lam, equation)
    value = gamma.hi + gamma.lo
    width = equation.width(value, lam)
    rows, exponent = equation.rows, equation.exponent

    def weight(s: Array) -> Array:  # dz/dt / exponent, 0 off the active set
        active, t = _active(s, gamma, width)
        return jnp.where(active, power(t, exponent - 1), 0.0)

    def partial(s: Array) -> Array:
        active, t = _active(s, gamma, width)
        return jnp.where(active, power(t, exponent), 0.0)

    moved = jnp.zeros_like(value)
    for s, s_dot in zip(entries, entries_dot, strict=True):
        if not isinstance(s_dot, jax.custom_derivatives.SymbolicZero):
            moved = moved + rows.sum(lambda pair: weight(pair[0]) * pair[1], ((s, s_dot),))
    total = rows.sum(weight, entries)
    if equation.phi != "identity":
        total = total + equation.width_slope(value, lam) * rows.sum(partial, entries)
    if not isinstance(lam_dot, jax.custom_derivatives.SymbolicZero):
        moved = moved - equation.width(value, jnp.ones_like(lam)) * rows.sum(partial, entries) * lam_dot
    if not isinstance(k_dot, jax.custom_derivatives.SymbolicZero):
        moved = moved - width / exponent * k_dot
    # No active entry: the selection is locally constant (the hard regime), and so is gamma as far as it can tell.
    some = total > 0
    gamma_dot = jnp.where(some, moved / jnp.where(some, total, 1.0), 0.0)
    return gamma, TwoFloat(jnp.zeros_like(gamma.hi), gamma_dot)
