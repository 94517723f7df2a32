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
from typing import Literal, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from ops.powers import dual_exponent, power
from ops.rootfinding import Evaluation, find_root
from ops.shrinkage import shrink
from ops.twofloat import TwoFloat

Nonlinearity = Literal["identity", "half_square"]
Entry = TypeVar("Entry")  # an array, or several of one shape read side by side

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

    def sum(self, function: Callable[[Entry], Array], entries: tuple[Entry, ...]) -> Array:
        """Sum of ``function`` over the entries of each row."""
        total = functools.reduce(
            jnp.add, [jnp.sum(function(s), axis=self.axis, keepdims=self.axis is not None) for s in entries]
        )
        return total if self.axis_name is None else lax.psum(total, self.axis_name)

    def count(self, function: Callable[[Entry], Array], entries: tuple[Entry, ...]) -> Array:
        """How many entries of each row ``function`` is true of, exactly."""
        # Floats are added several times faster than integers on a CPU, and hold every integer up to this bound.
        size = sum(s.size if self.axis is None else s.shape[-1] for s in jax.tree.leaves(entries))
        shards = 1 if self.axis_name is None else lax.axis_size(self.axis_name)
        kind = jnp.float32 if size * shards <= 2**24 else jnp.int32
        return self.sum(lambda s: function(s).astype(kind), entries).astype(jnp.int32)

    def max(self, function: Callable[[Entry], Array], entries: tuple[Entry, ...]) -> Array:
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
    # Written out because the derivative of 1 / width squares it, which overflows for narrow widths. Outside [0, 1]
    # nothing depends on the position any more, and clipping it keeps infinite entries from making NaN of 0 * inf.
    s, gamma, width = primals
    s_dot, gamma_dot, width_dot = tangents
    t = position(s, gamma, width)
    active = partly(t)
    gamma_dot = at(active, gamma_dot.hi + gamma_dot.lo)
    return t, (s_dot - gamma_dot - jnp.clip(t, 0.0, 1.0) * at(active, width_dot)) * _inverse(width)


def partly(t: Array) -> Array:
    """The active set: entries strictly between unselected and fully selected."""
    return (t > 0) & (t < 1)


def at(entries: Array, scalar: Array) -> Array:
    """A row's scalar at the entries of a boolean array, 0 at the others.

    Says which entries depend on the scalar. Its transpose, in reverse mode, then sums a selection of entries instead
    of a product, and XLA's CPU backend sums selections ten times faster.
    """
    return jnp.where(entries, scalar, 0.0)


def inner(t: Array, exponent: float) -> Array:
    """``t ** exponent`` on the active set, 0 off it."""
    active = partly(t)
    return jnp.where(active, power(jnp.where(active, t, 0.5), exponent), 0.0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def profile(t: Array, exponent: float) -> Array:
    """``clip(t, 0, 1) ** exponent``: how much of an entry is selected, by its position."""
    return jnp.where(t >= 1, 1.0, jnp.where(t <= 0, 0.0, power(t, exponent)))


@profile.defjvp
def _profile_jvp(exponent, primals, tangents):
    (t,), (t_dot,) = primals, tangents
    return profile(t, exponent), exponent * inner(t, exponent - 1) * t_dot


def _sums(entries: tuple[Array, ...], gamma: TwoFloat, width: Array, equation: Equation) -> tuple[Array, Array, Array]:
    """Count of the fully selected (int32); sums over the active set of ``z`` and of ``dz/dt / exponent``."""
    exponent, rows = equation.exponent, equation.rows

    def full(s: Array) -> Array:
        return position(s, gamma, width) >= 1

    def partial(s: Array) -> Array:
        t = position(s, gamma, width)
        # Not `partly`: a NaN has to reach the sum, to mark its row.
        return jnp.where((t <= 0) | (t >= 1), 0.0, power(t, exponent))

    def share(s: Array) -> Array:
        return inner(position(s, gamma, width), exponent - 1)

    return rows.count(full, entries), rows.sum(partial, entries), rows.sum(share, entries)


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
    if exponent == 1:
        change = excess
    else:
        # Newton on partial ** (1 / exponent), nearly linear in gamma where partial itself is nearly a power; written
        # so that partial - rest, all but equal near the root, cancel only once.
        surplus = jnp.where(partial > 0, jnp.minimum(excess / partial, 1.0), 0.0)
        change = -exponent * partial * jnp.expm1(jnp.log1p(-surplus) / exponent)
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
    folded = equation.phi == "half_square"  # magnitudes of Gaussian entries with mean 0: two tails
    mean = 0.0 * unit if folded else rows.sum(lambda s: jnp.where(usable(s), s / unit, 0.0), entries) / count
    spread = rows.sum(lambda s: jnp.where(usable(s), jnp.square(s / unit - mean), 0.0), entries) / count

    tail = jnp.clip(k / jnp.maximum(available, 1.0), 1e-6, 1 - 1e-6) / (2.0 if folded else 1.0)
    quantile = jax.scipy.special.ndtri(1.0 - tail)
    variance = 1.0 / (2.0 * p - 1.0) - 1.0 / p**2  # of U ** (p - 1), whose mean is 1 / p
    deviation = jnp.sqrt(spread)
    if not folded:
        width = lam / unit
        deviation = jnp.sqrt(spread + variance * jnp.square(width))
        start = mean + deviation * quantile - width / p
    else:
        # The width depends on gamma itself: first as if there were none, then that of the first guess.
        strength = lam * unit ** (p - 2.0)
        start = mean
        for _ in range(2):
            start = shrink(deviation * quantile, strength / p, p)
            deviation = jnp.sqrt(spread + variance * jnp.square(equation.width(start, strength)))
    sides = 2.0 if folded else 1.0
    density = sides * available * jnp.exp(-0.5 * jnp.square(quantile)) / jnp.sqrt(2 * jnp.pi) / (deviation * unit)
    return start * unit, density


def _solve(entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation) -> TwoFloat:
    limits = jnp.finfo(k.dtype)
    # +inf ties with the largest number there is, so that differences stay defined.
    entries = tuple(jnp.minimum(s, limits.max) for s in entries)
    available = equation.rows.count(lambda s: _usable(s, equation), entries).astype(k.dtype)
    k = jnp.minimum(k, available)
    start, density = guess(entries, k, available, lam, equation)
    return find_root(
        functools.partial(_evaluate, entries, k, lam, equation),
        start,
        density,
        lower=float(limits.tiny if equation.phi == "half_square" else limits.min),
        upper=float(limits.max),
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

    def share(s: Array) -> Array:
        return inner(position(s, gamma, width), exponent - 1)

    def partial(s: Array) -> Array:
        return inner(position(s, gamma, width), exponent)

    def moves(pair: tuple[Array, Array]) -> Array:
        s, s_dot = pair
        t = position(s, gamma, width)
        return jnp.where(partly(t), inner(t, exponent - 1) * s_dot, 0.0)

    moved = jnp.zeros_like(value)
    for s, s_dot in zip(entries, entries_dot, strict=True):
        if not isinstance(s_dot, jax.custom_derivatives.SymbolicZero):
            moved = moved + rows.sum(moves, ((s, s_dot),))
    total = rows.sum(share, entries)
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
