"""The relaxed top-k problem solved from its optimality conditions.

Written with ``f_phi(u, 1_k) = max over 0 <= z <= 1, sum(z) <= k of sum_i z_i phi(u_i)``, Proposition 2 is a saddle
point in ``(u, z)``. In ``u``: ``y_i = z_i phi'(u_i)`` and ``s_i - u_i = lam * y_i ** (p - 1)``. In ``z``: there is one
``gamma`` with ``u_i = gamma`` where ``0 < z_i < 1``, at least that where ``z_i = 1`` and at most that where
``z_i = 0``. So

    0 < z_i < 1:  y_i = ((s_i - gamma) / lam) ** (1 / (p - 1)) = z_i phi'(gamma),
    z_i = 1:      y_i = phi'(u_i),  u_i + lam * phi'(u_i) ** (p - 1) = s_i,

and ``sum(z) = k`` says which ``gamma``. With ``W(v) = lam * phi'(v) ** (p - 1)`` an entry starts to be selected at
``gamma = s_i`` and is selected fully from ``gamma + W(gamma) = s_i`` on.

With ``m = ceil(k)``, the ``m``-th largest entry is selected at least partly, and so lies above ``gamma``: the unknown
is its distance from ``gamma``, or ``gamma`` itself where that is closer to 0, whichever is small. Then differences
``s_i - gamma`` keep their digits however far from 0, or close together, the entries are.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from tests.ops.oracle.reals import Flags, Real, Reals, bisect, power

_FAR = Real(1e30)  # a position beyond which nothing depends on it


@dataclasses.dataclass(frozen=True)
class Curve:
    """``phi`` by its name: ``identity``, ``abs``, ``half_square`` or ``exp``."""

    name: str

    @property
    def even(self) -> bool:
        """Whether entries compete by magnitude."""
        return self.name in ("abs", "half_square")

    @property
    def linear(self) -> bool:
        """Whether the operator is a mask."""
        return self.name in ("identity", "abs")

    def value(self, v: Reals) -> Reals:
        """``phi(v)``, ``v >= 0`` if even."""
        if self.name == "exp":
            return np.exp(v - 1)
        return v if self.linear else v * v / 2

    def slope(self, v: Reals) -> Reals:
        """``phi'(v)``."""
        if self.name == "exp":
            return np.exp(v - 1)
        return np.ones_like(v) if self.linear else v

    def curvature(self, v: Reals) -> Reals:
        """``phi''(v)``."""
        if self.name == "exp":
            return np.exp(v - 1)
        return np.zeros_like(v) if self.linear else np.ones_like(v)


class Strength(NamedTuple):
    """``lam`` of each row, shape ``(rows, 1)``, and the exponents ``p - 1`` and ``1 / (p - 1)``."""

    lam: Reals
    order: Real
    exponent: Real

    def width(self, curve: Curve, v: Reals) -> Reals:
        """``W(v) = lam * phi'(v) ** (p - 1)``."""
        if curve.linear:
            return self.lam + np.zeros_like(v)
        if curve.name == "exp":
            return self.lam * np.exp(self.order * (v - 1))
        return self.lam * (v if self.order == 1 else power(v, self.order))


class Root(NamedTuple):
    """Where the rows have their threshold: scalars of shape ``(rows, 1)``, the others ``(rows, n)``.

    Attributes:
      s: what entries compete by, ``-inf`` where absent.
      gamma: the threshold. Where ``hard``, the end of the interval of thresholds from which entries are left.
      gap: ``s - gamma``, without cancellation.
      width: ``W(gamma)``.
      t: ``gap / width``: at most 0 where nothing is selected, at least 1 where all is. Where ``hard``, in the middle of
        the interval, so that it says how far the row is from selecting another entry partly.
      z: how much is selected.
      k: how much is selected in all: as asked for, but no more than there is.
      hard: whether no entry is partly selected, with the interval of thresholds from ``low`` to ``high``.
      low: the largest entry that is not selected, ``-inf`` (0 for even ``phi``) if there is none.
      high: ``u`` of the least entry that is selected, ``inf`` if there is none.
      pinned: whether ``gamma`` rests at the kink of ``abs``, and less than ``k`` is selected.
    """

    s: Reals
    gamma: Reals
    gap: Reals
    width: Reals
    t: Reals
    z: Reals
    k: Reals
    hard: Flags
    low: Reals
    high: Reals
    pinned: Flags


def unshifted(s: Reals, lam: Reals, by: Strength, curve: Curve) -> Reals:
    """``u`` of fully selected entries: the solution of ``u + W(u) = s``, for any shape of ``s`` and ``lam``."""
    if curve.linear:
        return s - lam
    if curve.name == "half_square":
        if by.order == 1:
            return s / (1 + lam)
        # In c = u ** (p - 1), of which neither term may exceed s.
        upper = np.minimum(s / lam, power(s, by.order))
        return power(bisect(lambda c: power(c, by.exponent) + lam * c > s, upper), by.exponent)
    # In u itself where that is positive, in -u where only s is, else in W, which decreases as u does.
    u = bisect(lambda u: u + lam * np.exp(by.order * (u - 1)) > s, np.maximum(s, 0))
    level = np.log(lam) + by.order * (s - 1)
    width = bisect(
        lambda w: np.log(w) + by.order * w > level, np.minimum(np.exp(level), np.maximum(level / by.order, 1))
    )
    most = np.log(lam / np.where(s > 0, s, 1)) / by.order
    below = bisect(lambda v: lam * np.exp(-by.order * (v + 1)) - v < s, np.maximum(most, 0))
    return np.where(s > lam * np.exp(-by.order), u, np.where(s > 0, -below, s - width))


def excess(gap: Reals, width: Reals, k: Reals, by: Strength) -> Reals:
    """By how much a threshold with these gaps selects more than ``k``; of entries selected fully only the count."""
    t = gap / width
    full, partly = t >= 1, (t > 0) & (t < 1)
    z = np.zeros_like(t)
    z[partly] = power(t[partly], by.exponent)
    return z.sum(axis=1, keepdims=True) - (k - full.sum(axis=1, keepdims=True))


def solve(s: Reals, present: Flags, k: Reals, by: Strength, curve: Curve) -> Root:
    """Solves rows of finite entries ``s``, not negative if ``phi`` is even, of which those ``present`` take part."""
    present = present & (s > 0) if curve.name == "half_square" else present
    s = np.where(present, s, -np.inf)
    k = np.minimum(k, present.sum(axis=1, keepdims=True))
    place = np.ceil(k).astype(np.int64)
    edge = np.full_like(k, np.inf)
    ordered = np.concatenate([edge, -np.sort(-s, axis=1), -edge], axis=1)
    least = np.take_along_axis(ordered, place, axis=1)  # the m-th largest entry, inf if k is 0
    low = np.maximum(np.take_along_axis(ordered, place + 1, axis=1), 0.0 if curve.even else -np.inf)

    nothing = k == 0
    base = np.where(nothing, 1.0, least)
    width = np.where(np.isfinite(low), by.width(curve, np.where(np.isfinite(low), low, 0.0)), 0.0)
    # How much of a step there is between the entry that is fully selected and the next, beyond the width.
    slack = np.where(width > 0, (base - low) / np.where(width > 0, width, 1.0) - 1, np.inf)
    hard = nothing | ((place == k) & (slack >= 0))
    pinned = ~hard & (excess(s, by.lam, k, by) <= 0) if curve.name == "abs" else np.zeros_like(hard)

    far = np.zeros_like(hard)
    if curve.name == "half_square":
        far = excess(s - base / 2, by.width(curve, base / 2), k, by) < 0

    def parts(unknown: Reals) -> tuple[Reals, Reals, Reals]:
        gamma = np.where(far, unknown, base - unknown)
        return gamma, np.where(far, s - unknown, (s - base) + unknown), by.width(curve, gamma)

    def too_large(unknown: Reals) -> Flags:
        surplus = excess(*parts(unknown)[1:], k, by)
        return np.where(far, surplus < 0, surplus > 0)

    upper = np.where(far, base / 2, by.width(curve, base))
    if curve.even:
        upper = np.minimum(upper, base)
    gamma, gap, at_gamma = parts(bisect(too_large, np.where(hard | pinned, 1.0, upper)))

    high = np.where(nothing, np.inf, unshifted(base, by.lam, by, curve))
    end = np.where(nothing, np.where(np.isfinite(low), low, 0.0), high)
    at_end = by.width(curve, end)
    gamma = np.where(hard, end, np.where(pinned, 0.0, gamma))
    gap = np.where(hard, np.where(nothing, s - end, (s - base) + at_end), np.where(pinned, s, gap))
    at_gamma = np.where(hard, at_end, at_gamma)

    # From the middle of the interval of thresholds to its ends t changes by half the slack.
    step = np.where(width > 0, width, 1.0)
    within = np.where(s >= base, 1 + slack / 2 + (s - base) / step, -slack / 2 - (low - s) / step)
    within = np.where(nothing, -np.inf, within)
    t = np.where(present, np.where(hard, within, gap / at_gamma), -np.inf)
    t = np.clip(t, -_FAR, _FAR)
    z = power(np.clip(t, 0, 1), by.exponent)
    return Root(s, gamma, gap, at_gamma, t, z, k, hard, low, high, pinned)
