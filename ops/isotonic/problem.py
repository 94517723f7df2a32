"""The isotonic problem of the paper, entry by entry.

    min_{v_1 >= ... >= v_n}  sum_i h_i(v_i),        h_i(v) = r*(s_i - v) + w_i phi(v)        (equations 5 and 6)

with ``r*(t) = lam ** (1 - q) |t| ** q / q``, the conjugate of ``r(y) = lam / p |y| ** p``, and ``1/p + 1/q = 1``. Its
solution gives the operator of Proposition 2 as ``y = (r*)'(s - v)``.

In every file of this folder ``s``, ``w`` and ``v`` are entries, weights and the solution, of shape ``(rows, n)``, and
``lam`` is the strength of the regularisation, positive, of shape ``(rows, 1)``. ``linked`` says of an entry whether it
is held together with its successor, in one block: bool, ``(rows, n)``, false at the last of each row. ``tilt`` is the
slope of a linear term added to ``h_i``.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from ..arithmetic import TwoFloat, choose, dual_exponent, power, ratio, select, shift
from ..nonlinearities import ABS, HALF_SQUARE, IDENTITY, Nonlinearity
from ..scalar.rootfinding import End, Evaluation, find_root


@dataclasses.dataclass(frozen=True)
class Problem:
    """The static part of the problem: exponent and nonlinearity. All methods act entrywise."""

    p: float
    phi: Nonlinearity

    @property
    def linear(self) -> bool:
        """True if ``phi`` is ``x``, or ``|x|`` on the non-negative cone."""
        return self.phi in (IDENTITY, ABS)

    @property
    def quadratic(self) -> bool:
        """True if every ``h_i`` is a parabola."""
        return self.p == 2 and (self.linear or self.phi == HALF_SQUARE)

    def precision(self, w: Array, lam: Array) -> Array:
        """Returns the curvature of each ``h_i`` if it is a parabola, up to one factor per row."""
        return jnp.min(lam, axis=1, keepdims=True) / lam * (jnp.ones_like(w) if self.linear else 1.0 + lam * w)

    def dual(self, t: Array, lam: Array) -> Array:
        """Returns ``y = (r*)'(t)``, for which ``lam * |y| ** (p - 1) = |t|``."""
        if self.p == 2:
            return ratio(t, lam)
        some = t != 0
        magnitude = power(ratio(jnp.abs(choose(some, t, lam)), lam), dual_exponent(self.p))
        return choose(some, jnp.sign(t) * magnitude, 0.0)

    def dual_slope(self, t: Array, lam: Array) -> Array:
        """Returns ``(r*)''(t)``."""
        if self.p == 2:
            return 1.0 / lam + jnp.zeros_like(t)
        exponent = dual_exponent(self.p)
        some = t != 0
        magnitude = power(jnp.abs(choose(some, t, lam)) / lam, exponent - 1)
        return choose(some, exponent / lam * magnitude, 0.0)

    def slope(self, v: Array) -> Array:
        """Returns ``phi'(v)``; for ``|x|`` it is 1 below 0 too, since solutions are not negative there."""
        if self.phi == HALF_SQUARE:
            return v
        if self.phi.even and not self.linear:
            return jnp.sign(v) * self.phi.slope(jnp.abs(v))
        return self.phi.slope(v)

    def curvature(self, v: Array) -> Array:
        """Returns ``phi''(v)``."""
        return self.phi.curvature(jnp.abs(v) if self.phi.even else v)

    def gap(self, y: Array, lam: Array) -> Array:
        """Returns ``r'(y)``, the inverse of ``dual``."""
        if self.p == 2:
            return lam * y
        some = y != 0
        return choose(some, lam * jnp.sign(y) * jnp.abs(choose(some, y, 1.0)) ** (self.p - 1.0), 0.0)


def span(pull: Array, stiffness: Array, push: Array, bend: Array) -> Array:
    """Returns the move of a value that changes ``pull`` or ``push`` by a good part, given their rates of change.

    It is 0 if that is unknown: if a term overflows, or underflows to 0 together with its rate.
    """

    def ratio_of(term: Array, rate: Array, of_none: Array | float) -> Array:
        return choose(rate > 0, term / choose(rate > 0, rate, 1.0), of_none)

    least = jnp.minimum(
        ratio_of(pull, stiffness, 0.0), ratio_of(push, bend, choose(push > 0, jnp.inf, 0.0, push.dtype))
    )
    return choose((least < jnp.inf) & (pull < jnp.inf) & (push < jnp.inf), least, 0.0)


def forces(
    problem: Problem, v: TwoFloat, s: Array, w: Array, lam: Array, tilt: Array | float
) -> tuple[Array, Array, Array, Array, Array]:
    """Returns ``-h_i'(v) - tilt_i``, the sizes of what pulls ``v`` up and down, and how fast they change."""
    value, t = v.hi + v.lo, (s - v.hi) - v.lo
    pull, push = problem.dual(t, lam), w * problem.slope(value) + tilt
    return pull - push, jnp.abs(pull), jnp.abs(push), problem.dual_slope(t, lam), w * problem.curvature(value)


def evaluation(terms: tuple[Array, ...], settled: Array | bool = False) -> Evaluation:
    """Returns sums of ``forces`` in the form that ``find_root`` takes; nothing is left to find where ``settled``."""
    excess, pulls, pushes, stiffness, bend = terms
    size = pulls + pushes
    # From here on, steps would consist of the rounding errors of the terms.
    converged = ((jnp.abs(excess) <= jnp.finfo(excess.dtype).eps * size) & (size < jnp.inf)) | settled
    step = choose(converged, 0.0, excess / (stiffness + bend))
    return Evaluation(
        excess=excess,
        level=excess,
        step=step,
        trusted=jnp.isfinite(step),
        converged=converged,
        scale=span(pulls, stiffness, pushes, bend),
    )


def minimisers(problem: Problem, s: Array, w: Array, lam: Array, tilt: Array | float = 0.0) -> TwoFloat:
    """Returns the minimiser of each ``h_i(v) + tilt_i * v`` without the order constraint.

    Weights must not be negative unless ``phi`` is linear.
    """
    at = TwoFloat(s, jnp.zeros_like(s))
    if problem.linear:
        return shift(at, -problem.gap(w + tilt, lam))
    if problem.quadratic:
        near = shift(at, -lam * (w * s + tilt) / (1.0 + lam * w))
        # Far from s the difference would cancel; the other form has none.
        far = (s - lam * tilt) / (1.0 + lam * w)
        return select(lam * w > 1, TwoFloat(far, jnp.zeros_like(s)), near)

    def evaluate(v: TwoFloat) -> Evaluation:
        return evaluation(forces(problem, v, s, w, lam, tilt))

    # phi' increases, so the gap between s and the minimiser is at most that for the slope at s.
    limits = jnp.finfo(s.dtype)
    drop = jnp.minimum(problem.gap(w * problem.slope(s) + tilt, lam), limits.max / 4)
    start = s - 0.5 * drop
    root = find_root(evaluate, start, End(float(limits.min), jnp.inf), End(float(limits.max), -jnp.inf)).point
    none = (w == 0) & (tilt == 0)  # the minimiser is s, where the slope is 0 and Newton's method slow
    return TwoFloat(choose(none, s, root.hi), choose(none, 0.0, root.lo))


def descending(x: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Returns the entries of each row in descending order, and the function that restores the original order.

    Equal entries keep their order. The order is a constant to differentiation.
    """
    order = jnp.argsort(lax.stop_gradient(x), axis=-1, descending=True)

    def restore(y: Array) -> Array:
        row = lax.broadcasted_iota(order.dtype, order.shape, 0)
        return jnp.zeros_like(y).at[row, order].set(y, mode="promise_in_bounds", unique_indices=True)

    return jnp.take_along_axis(x, order, axis=-1), restore
