"""The plan with limited rows and columns: its dual minimised by turns and Newton's method, and what certifies it.

    T_ij = clip((x_ij - u_i - v_j) / lam, 0, 1) ** e,        e = 1 / (p - 1),

with rows that sum to ``k`` and columns that sum to at most ``b_j``, ``v_j >= 0`` and 0 where a column is below. These
conditions say that ``T`` is the one solution, however it was found; a problem for which they are not met to many more
digits than are judged is not judged.

How far a plan may be off. One whose sums are off is the solution for other sums. Its difference from the right one is a
flow of what the sums differ by, along paths that no entry leaves in both directions, as a cycle would pay for one of
the two plans: so no entry is off by more than all sums are together, here each by the tolerance. And a plan of
potentials that are rounded is the solution for entries that are off by as much; as ``lam / p |T|^p`` is strongly convex
on [0, 1], with the constant ``lam (p - 1)``, the difference has at most the norm of these over that.
"""

import dataclasses

import numpy as np

from scripts.fuzz.oracle.reals import Flags, Reals
from scripts.fuzz.oracle.rounding import Precision
from scripts.fuzz.oracle.topk import Truth
from scripts.fuzz.quantity import Quantity

_HALVINGS, _ITERATIONS, _ENOUGH = 70, 200, 1e-12
_LENGTHS = np.array([1.0, 0.5, 0.1, 0.01])


@dataclasses.dataclass(frozen=True)
class Problem:
    """Of many matrices: ``x`` is ``(rows, m, n)``, ``b`` ``(rows, 1, n)``, ``k`` and ``lam`` ``(rows, 1, 1)``."""

    x: Reals
    k: Reals
    b: Reals
    lam: Reals
    exponent: float

    def position(self, u: Reals, v: Reals) -> Reals:
        """At most 0 where nothing is selected, at least 1 where all is."""
        return (self.x - u - v) / self.lam

    def plan(self, u: Reals, v: Reals) -> Reals:
        """``T``."""
        return np.clip(self.position(u, v), 0, 1) ** self.exponent

    def slopes(self, t: Reals) -> Reals:
        """How entries partly selected grow with ``x``, 0 elsewhere."""
        part = (t > 0) & (t < 1)
        return np.where(part, self.exponent * np.where(part, t, 1) ** (self.exponent - 1) / self.lam, 0)

    def residual(self, u: Reals, v: Reals) -> Reals:
        """By how much the conditions are not met."""
        plan = self.plan(u, v)
        over = plan.sum(axis=1, keepdims=True) - self.b
        columns = np.where(v > 0, np.abs(over), np.maximum(over, 0))
        rows = np.abs(plan.sum(axis=2, keepdims=True) - self.k)
        return np.maximum(rows.max(axis=(1, 2)), columns.max(axis=(1, 2)))[:, None, None]


def _turn(of: Problem, apart: Reals, wanted: Reals, axis: int) -> Reals:
    """The thresholds of ``apart`` with which sums along the axis are what is wanted."""
    low = apart.min(axis=axis, keepdims=True) - of.lam
    high = apart.max(axis=axis, keepdims=True)
    for _ in range(_HALVINGS):
        middle = low + (high - low) / 2
        more = (np.clip((apart - middle) / of.lam, 0, 1) ** of.exponent).sum(axis=axis, keepdims=True) > wanted
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return low + (high - low) / 2


def _system(of: Problem, t: Reals, free: Flags) -> Reals:
    """The second derivative of the dual in all ``u`` and the free ``v``, shape ``(rows, m + n, m + n)``."""
    slopes = of.slopes(t)
    rows, m, n = slopes.shape
    matrix = np.zeros((rows, m + n, m + n))
    matrix[:, :m, :m] = np.eye(m) * slopes.sum(axis=2)[:, :, None]
    held = slopes * free
    matrix[:, m:, m:] = np.eye(n) * held.sum(axis=1)[:, :, None]
    matrix[:, :m, m:], matrix[:, m:, :m] = held, np.swapaxes(held, 1, 2)
    return matrix


def solve(of: Problem) -> tuple[Reals, Reals]:
    """``u`` and ``v``; as good as they get, which ``Problem.residual`` says."""
    m = of.x.shape[1]
    u, v = np.zeros((len(of.x), m, 1)), np.zeros_like(of.b)
    spread = (of.x.max(axis=(1, 2)) - of.x.min(axis=(1, 2)))[:, None, None]
    lam = np.maximum(of.lam, spread)
    for _ in range(_ITERATIONS):
        now = dataclasses.replace(of, lam=lam)
        u = _turn(now, of.x - v, of.k, 2)
        free = now.plan(u, 0 * v).sum(axis=1, keepdims=True) > of.b
        v = np.where(free, np.maximum(_turn(now, of.x - u, of.b, 1), 0), 0)
        residual = now.residual(u, v)
        if (residual <= _ENOUGH).all() and (lam == of.lam).all():
            break
        t = now.position(u, v)
        excess = (now.plan(u, v).sum(axis=2) - of.k[:, :, 0])[:, :, None]
        right = np.concatenate([excess, np.zeros((*v.shape[::2], 1))], axis=1)
        matrix = _system(now, t, v > 0)
        steepest = np.maximum(matrix.max(axis=(1, 2), keepdims=True), 1e-3 / lam)
        damping = steepest * (1e-3 * np.minimum(residual, 1) + 1e-13)
        step = np.linalg.solve(matrix + damping * np.eye(matrix.shape[1]), right)
        best, left = (u, v), residual
        for length in _LENGTHS:
            there = u + length * step[:, :m], np.maximum(v + length * np.swapaxes(step[:, m:], 1, 2) * (v > 0), 0)
            off = now.residual(*there)
            better = off < left
            best = np.where(better, there[0], best[0]), np.where(better, there[1], best[1])
            left = np.where(better, off, left)
        u, v = best
        lam = np.where(left <= 0.3, np.maximum(of.lam, lam / 4), lam)
    return u, v


def expect(of: Problem, p: float, precision: Precision, tolerance: float, cotangent: Reals) -> Truth:
    """The plan and its derivatives, weighted by ``cotangent`` of the shape of ``x``; one ``k`` is that of all rows."""
    u, v = solve(of)
    rows, m, n = of.x.shape
    plan, t = of.plan(u, v), of.position(u, v)
    known = of.residual(u, v) <= 1e-3 * tolerance

    sizes = sum(np.abs(part).max(axis=(1, 2)) for part in (of.x, u, v)) + of.lam[:, 0, 0]
    moved = np.sqrt(m * n) * 8 * precision.unit * sizes[:, None] / ((p - 1) * of.lam[:, :, 0])
    bound = (m + n) * tolerance + moved
    flat = (rows, m * n)
    own = precision.unit * (8 * of.exponent + 8) * plan.reshape(flat)
    answers = [Quantity.of("value", plan.reshape(flat), bound + own, known[:, 0])]
    answers += _derivatives(of, v, t, precision, bound[:, :, None], cotangent, known)
    nobody = np.zeros((rows, 1), bool)
    return Truth(answers, nobody, nobody)


def _derivatives(
    of: Problem, v: Reals, t: Reals, precision: Precision, bound: Reals, h: Reals, known: Flags
) -> list[Quantity]:
    """By the transposed linear system; judged where no entry and no column is about to change what it is."""
    rows, m, n = of.x.shape
    slopes, plan = of.slopes(t), np.clip(t, 0, 1) ** of.exponent
    near = bound ** (1 / of.exponent)  # by how much a position may be off
    kink = (np.minimum(np.abs(t), np.abs(t - 1)) <= near).any(axis=(1, 2))
    column = np.abs(plan.sum(axis=1, keepdims=True) - of.b)
    least = near * of.lam * (m + n)
    turning = np.where(v > 0, v <= least, column <= (m + n) * bound).any(axis=(1, 2))
    # Where all limits together are just what rows select, all bind, whatever the least potential is.
    filled = np.isclose(of.b.sum(axis=(1, 2)), m * of.k[:, 0, 0], rtol=1e-9, atol=0)
    kink |= turning & ~(filled & ((v <= least).sum(axis=(1, 2)) <= 1))

    matrix = _system(of, t, v > 0)
    diagonal = np.einsum("rii->ri", matrix)
    scale = np.where(diagonal > 0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1)), 0)
    scaled = scale[:, :, None] * matrix * scale[:, None, :]
    levels, vectors = np.linalg.eigh(scaled)
    used = levels > 1e-9
    inverse = np.where(used, 1 / np.where(used, levels, 1), 0)
    pulled = slopes * h
    right = np.concatenate([pulled.sum(axis=2), pulled.sum(axis=1) * (v[:, 0] > 0)], axis=1) * scale
    found = scale * np.einsum("rij,rj,rkj,rk->ri", vectors, inverse, vectors, right)
    shares = found[:, :m, None] + found[:, None, m:]
    rest = h - shares
    in_x = slopes * rest
    spent = slopes * np.where(slopes > 0, t, 0)
    condition = inverse.max(axis=1)[:, None]

    # Slopes are powers of positions, which are off.
    least = np.where(slopes > 0, t, 1).min(axis=(1, 2))[:, None]
    ragged = 4 * (of.exponent - 1) * bound[:, :, 0] ** (1 / of.exponent) / least + 64 * precision.unit
    off = ragged * condition * (m + n)
    most = np.abs(h).max(axis=(1, 2))[:, None]
    of_slope = slopes.max(axis=(1, 2))[:, None] * most * (1 + condition**0.5)
    of_lam = (spent * (np.abs(h) + np.abs(shares))).sum(axis=(1, 2))[:, None] + most
    judged = known[:, 0] & ~kink[:, None] & (off < 0.05)
    # Where all limits of rows that hang together bind, `k` can change only with them.
    tied = ((levels <= 1e-9) & (np.einsum("rij,ri->rj", vectors**2, diagonal) > 0)).any(axis=1)
    tied = (tied | filled)[:, None]
    no_part = (diagonal[:, :m] == 0).any(axis=1)[:, None]
    flat = np.ones((1, m * n))
    return [
        Quantity.of("d/dx", in_x.reshape(rows, -1), off * of_slope * flat, judged, None, of_slope),
        Quantity.of(
            "d/dk",
            found[:, :m].sum(axis=1)[:, None],
            off * m * most * (1 + condition),
            judged & ~tied & ~no_part,
            None,
            m * most,
        ),
        Quantity.of("d/dlam", -(spent * rest).sum(axis=(1, 2))[:, None], off * of_lam, judged, None, of_lam),
    ]
