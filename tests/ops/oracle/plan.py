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

from tests.ops.oracle.problem import Answer, Problem, sizes_of
from tests.ops.oracle.reals import Flags, Reals

_HALVINGS, _ITERATIONS, _ENOUGH = 70, 200, 1e-12
_LENGTHS = np.array([1.0, 0.5, 0.1, 0.01])


@dataclasses.dataclass(frozen=True)
class Matrices:
    """Matrices in float64: ``x`` is ``(rows, m, n)``, ``b`` ``(rows, 1, n)``, ``k`` and ``lam`` ``(rows, 1, 1)``."""

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

    def turn(self, apart: Reals, wanted: Reals, axis: int) -> Reals:
        """The thresholds of ``apart`` with which sums along the axis are what is wanted."""
        low = apart.min(axis=axis, keepdims=True) - self.lam
        high = apart.max(axis=axis, keepdims=True)
        for _ in range(_HALVINGS):
            middle = low + (high - low) / 2
            more = (np.clip((apart - middle) / self.lam, 0, 1) ** self.exponent).sum(axis=axis, keepdims=True) > wanted
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return low + (high - low) / 2

    def system(self, t: Reals, free: Flags) -> Reals:
        """The second derivative of the dual in all ``u`` and the free ``v``, shape ``(rows, m + n, m + n)``."""
        slopes = self.slopes(t)
        rows, m, n = slopes.shape
        matrix = np.zeros((rows, m + n, m + n))
        held = slopes * free
        matrix[:, :m, :m] = np.eye(m) * slopes.sum(axis=2)[:, :, None]
        matrix[:, m:, m:] = np.eye(n) * held.sum(axis=1)[:, :, None]
        matrix[:, :m, m:], matrix[:, m:, :m] = held, np.swapaxes(held, 1, 2)
        return matrix


def solve(of: Matrices) -> tuple[Reals, Reals]:
    """``u`` and ``v``; as good as they get, which ``Matrices.residual`` says."""
    m = of.x.shape[1]
    u, v = np.zeros((len(of.x), m, 1)), np.zeros_like(of.b)
    spread = (of.x.max(axis=(1, 2)) - of.x.min(axis=(1, 2)))[:, None, None]
    lam = np.maximum(of.lam, spread)
    for _ in range(_ITERATIONS):
        now = dataclasses.replace(of, lam=lam)
        u = now.turn(of.x - v, of.k, 2)
        free = now.plan(u, 0 * v).sum(axis=1, keepdims=True) > of.b
        v = np.where(free, np.maximum(now.turn(of.x - u, of.b, 1), 0), 0)
        residual = now.residual(u, v)
        if (residual <= _ENOUGH).all() and (lam == of.lam).all():
            break
        excess = now.plan(u, v).sum(axis=2, keepdims=True) - of.k
        right = np.concatenate([excess, np.zeros((*v.shape[::2], 1))], axis=1)
        matrix = now.system(now.position(u, v), v > 0)
        steepest = np.maximum(matrix.max(axis=(1, 2), keepdims=True), 1e-3 / lam)
        damping = steepest * (1e-3 * np.minimum(residual, 1) + 1e-13)
        step = np.linalg.solve(matrix + damping * np.eye(matrix.shape[1]), right)
        best, left = (u, v), residual
        for length in _LENGTHS:
            there = u + length * step[:, :m], np.maximum(v + length * np.swapaxes(step[:, m:], 1, 2) * (v > 0), 0)
            better = now.residual(*there) < left
            best = tuple(np.where(better, new, old) for new, old in zip(there, best, strict=True))
            left = np.where(better, now.residual(*there), left)
        u, v = best
        lam = np.where(left <= 0.3, np.maximum(of.lam, lam / 4), lam)
    return u, v


def plan(of: Problem, shape: tuple[int, int], tolerance: float) -> Answer:
    """The plan of matrices of this shape, whose limits are the first entries of ``extra``, and its derivatives."""
    m, n = shape
    rows = len(of.x)

    def scalars(values: Reals) -> Reals:
        return values.astype(np.float64)[:, :, None]

    x, h = (values.astype(np.float64).reshape(rows, m, n) for values in (of.x, of.cotangent))
    given = Matrices(x, scalars(of.k), of.extra.astype(np.float64)[:, None, :n], scalars(of.lam), float(of.exponent))
    u, v = solve(given)
    t = given.position(u, v)
    known = np.where(given.residual(u, v)[:, 0] <= 1e-3 * tolerance, 1, np.nan)
    sizes = sum(np.abs(part).max(axis=(1, 2)) for part in (x, u, v))[:, None] + given.lam[:, 0]
    moved = np.sqrt(m * n) * 8 * of.unit * sizes / (float(of.order) * given.lam[:, 0])
    bound = (m + n) * tolerance + moved
    value = given.plan(u, v).reshape(rows, m * n)
    wanted, slack = _derivatives(given, v, t, of.unit, bound[:, :, None], h)
    wanted = {name: known * values for name, values in (wanted | {"value": value}).items()}
    slack["value"] = bound + of.unit * (8 * given.exponent + 8) * value
    return Answer(wanted, slack, 0 * of.x, sizes_of(wanted), 0 * of.k)


def _derivatives(
    of: Matrices, v: Reals, t: Reals, unit: float, bound: Reals, h: Reals
) -> tuple[dict[str, Reals], dict[str, Reals]]:
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

    matrix = of.system(t, v > 0)
    diagonal = np.einsum("rii->ri", matrix)
    scale = np.where(diagonal > 0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1)), 0)
    levels, vectors = np.linalg.eigh(scale[:, :, None] * matrix * scale[:, None, :])
    used = levels > 1e-9
    inverse = np.where(used, 1 / np.where(used, levels, 1), 0)
    pulled = slopes * h
    right = np.concatenate([pulled.sum(axis=2), pulled.sum(axis=1) * (v[:, 0] > 0)], axis=1) * scale
    found = scale * np.einsum("rij,rj,rkj,rk->ri", vectors, inverse, vectors, right)
    shares = found[:, :m, None] + found[:, None, m:]
    spent = slopes * np.where(slopes > 0, t, 0)

    # Slopes are powers of positions, which are off.
    condition, most = inverse.max(axis=1)[:, None], np.abs(h).max(axis=(1, 2))[:, None]
    lowest = np.where(slopes > 0, t, 1).min(axis=(1, 2))[:, None]
    ragged = 4 * (of.exponent - 1) * bound[:, :, 0] ** (1 / of.exponent) / lowest + 64 * unit
    off = ragged * condition * (m + n)
    judged = np.where(~kink[:, None] & (off < 0.05), 1, np.nan)
    # Where all limits of rows that hang together bind, `k` can change only with them.
    tied = ((levels <= 1e-9) & (np.einsum("rij,ri->rj", vectors**2, diagonal) > 0)).any(axis=1)
    free = np.where(tied | filled | (diagonal[:, :m] == 0).any(axis=1), np.nan, 1)[:, None]
    of_slope = slopes.max(axis=(1, 2))[:, None] * most * (1 + condition**0.5)
    of_lam = (spent * (np.abs(h) + np.abs(shares))).sum(axis=(1, 2))[:, None] + most
    wanted = {
        "x": judged * (slopes * (h - shares)).reshape(rows, -1),
        "k": judged * free * found[:, :m].sum(axis=1)[:, None],
        "lam": -judged * (spent * (h - shares)).sum(axis=(1, 2))[:, None],
    }
    slack = {
        "x": off * of_slope * np.ones((1, m * n)),
        "k": off * m * most * (1 + condition),
        "lam": off * of_lam,
    }
    return wanted, slack
