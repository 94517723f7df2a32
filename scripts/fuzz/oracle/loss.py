"""The top-k losses: ``f_R(x, 1_k) + R(t) - <x, t>``, of targets as they are or moved into the polytope.

With ``gamma`` the threshold and ``h(a) = max over 0 <= y <= 1 of a y - lam y^p / p``, the dual of the problem reads
``f_R(x, 1_k) = min over gamma of sum_i h(x_i - gamma) + k gamma``. So the loss is

    sum_i T_i + (k - sum(t)) gamma,       T_i = h(a_i) - a_i t_i + lam t_i^p / p,       a_i = x_i - gamma,

with every ``T_i >= 0`` (Fenchel and Young), and all of it stationary in ``gamma``. ``T`` is ``lam`` times the Bregman
divergence of ``|.|^p / p`` from ``t`` to ``y``, plus ``(1 - t)(a - lam)`` where ``y = 1`` and ``-t a`` where ``y = 0``:
rounding may take it as far as the roundings of ``y``, ``t`` and ``a`` take these three. Of targets as they are the loss
is let off with the rounding of ``R(t)`` besides.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from scripts.fuzz.oracle import hard, operator
from scripts.fuzz.oracle.equation import Curve
from scripts.fuzz.oracle.operator import Solved
from scripts.fuzz.oracle.reals import EPS, Flags, Reals, power, real
from scripts.fuzz.oracle.rounding import Precision
from scripts.fuzz.oracle.topk import Numbers, Truth, solve_masked
from scripts.fuzz.quantity import Quantity


class _Targets(NamedTuple):
    """Targets as the loss uses them, their error, how they grow with ``k``, and whether a kink in ``k`` is near."""

    t: Reals
    error: Reals
    grows: Reals
    kink: Flags


class _Selected(NamedTuple):
    """The mask, ``x - gamma``, and the error of the mask relative to itself, in units."""

    y: Reals
    gap: Reals
    own: Reals


def expect(
    of: Numbers, p: float, precision: Precision, cotangent: np.ndarray, targets: np.ndarray, where: Flags, smooth: bool
) -> Truth:
    """The loss of each row and its derivatives, weighted by ``cotangent`` of shape ``(rows, 1)``."""
    capped = dataclasses.replace(of, k=np.minimum(of.k, _total(of.present)))
    t = np.where(where & of.present, real(targets), 0.0)
    with np.errstate(all="ignore"):
        moved = _Targets(t, 0 * t, 0 * t, of.nan & False)
        if smooth:
            moved = _into_polytope(t, of.present, capped.k, precision.unit)
        answers = _answers(of, solve_masked(capped, p, Curve("identity"), precision), p, real(cotangent), moved, smooth)
    return Truth(answers, of.nan, np.zeros_like(of.nan))


def _total(values: Reals | Flags) -> Reals:
    return values.sum(axis=1, keepdims=True)


def _into_polytope(t: Reals, present: Flags, k: Reals, unit: float) -> _Targets:
    """Targets that sum to ``k``, in [0, 1]: what is missing is shared among classes by how negative they are."""
    positives = _total(t)
    rest = np.where(present, 1 - t, 0.0)
    negatives = np.where(_total(rest) > 0, _total(rest), 1)
    share = t / np.where(positives > 0, positives, 1)
    fewer = positives <= k
    kink = np.abs(positives - k) <= 1e-5 * (positives + k)
    goes = np.where(fewer, rest / negatives, share)
    moved = np.where(fewer, t + (k - positives) * goes, k * share)
    adding = unit * (4 + 0.5 * _total(present))  # of the sums over classes
    return _Targets(moved, 4 * unit * moved + adding * goes * (k + positives), goes, kink)


def _hard_rows(given: Numbers, of: Solved) -> tuple[_Selected, Flags]:
    """At ``lam = 0``: the hard mask, the least entry that is selected as the threshold, and which rows have ties."""
    s = np.where(given.present, given.x, -np.inf)
    z = hard.chosen(s, of.root.k)
    least = np.where(z > 0, s, np.inf).min(axis=1, keepdims=True)
    most = np.where(given.present.any(axis=1, keepdims=True), s.max(axis=1, keepdims=True), 0.0)
    return _Selected(z, s - np.where(np.isfinite(least), least, most), np.zeros_like(z)), hard.tied(s, z)


def _answers(given: Numbers, of: Solved, p: float, weight: Reals, moved: _Targets, smooth: bool) -> list[Quantity]:
    root, rounded, present = of.root, of.rounded, given.present
    unit, adding, t = rounded.unit, rounded.adding, moved.t
    vanishing = given.lam == 0
    limit, tied = _hard_rows(given, of)
    soft = _Selected(np.where(present, root.z, 0.0), root.gap, rounded.own)
    y, gap, own = (np.where(vanishing, h, r) for h, r in zip(limit, soft, strict=True))
    gap = np.where(present, gap, 0.0)
    gamma = np.where(vanishing, np.where(present, given.x - gap, -np.inf).max(axis=1, keepdims=True), root.gamma)
    gamma = np.where(present.any(axis=1, keepdims=True), gamma, 0.0)

    def term(values: Reals) -> Reals:  # of each class that takes part
        return np.where(present, values, 0.0)

    def norm(values: Reals) -> Reals:
        return _total(term(power(np.abs(values), np.longdouble(p)))) / p

    lam, order = given.lam, of.by.order
    marginal = lam * power(y, order)
    divergence = lam * (power(t, order + 1) / p + power(y, order + 1) * (1 - 1 / (order + 1)) - t * power(y, order))
    missing, misplaced = (1 - t) * np.maximum(gap - lam, 0), t * np.maximum(-gap, 0)
    terms = _total(term(np.maximum(divergence, 0) + missing + misplaced))
    made_of = marginal * np.abs(t - y) + np.where(gap > lam * (1 - 8 * unit), (1 - t) * (gap + lam), 0.0) + misplaced
    error = adding * terms + _total(term((own + 8) * unit * made_of)) + 8 * EPS * (norm(t) + norm(y)) * lam
    error = error + np.where(vanishing, 0.0, rounded.total * rounded.level)
    # A divergence from roundings alone: its second derivative, lam (p - 1) y^(p - 2), over the width of the rounding.
    ragged = unit * ((own + 2) * y) + moved.error
    bending = order * ragged**2 / power(np.where(y > 0, np.maximum(y, t), 1), 1 - order)
    error = error + lam * _total(term(np.minimum(power(ragged, order + 1), np.where(y > 0, bending, np.inf))))
    surplus = root.k - _total(t)
    if smooth:
        loss, size = terms, terms
        error = error + _total(term(moved.error * np.abs(lam * power(t, order) - gap)))
    else:
        loss = terms + surplus * gamma
        size = terms + (np.abs(surplus) + _total(t)) * np.abs(gamma) + lam * norm(t)
        error = error + (adding + 4 * unit) * size

    operated = operator.value(of, np.ones_like(t))
    of_y = np.where(vanishing, unit * y, operated.bound)
    in_x = term(weight * (y - t))
    in_x_error = np.abs(weight) * term(of_y + moved.error + unit * (y + t))
    in_lam = weight * (norm(t) - norm(y))
    of_norm = _total(term(power(y + of_y, order) * of_y)) + (adding + 8 * unit) * (norm(y) + norm(t))
    of_norm = of_norm + _total(term(power(t + moved.error, order) * moved.error))
    in_k, in_k_error, defined, other, sized = _in_k(given, of, moved, smooth)
    return [
        Quantity.of("value", loss, error, scale=size + lam * (norm(y) + norm(t))),
        Quantity.of("d/dx", in_x, in_x_error, ~(vanishing & tied), None, np.abs(weight)),
        Quantity.of(
            "d/dk",
            weight * in_k,
            np.abs(weight) * in_k_error,
            defined & ~vanishing,
            weight * other,
            np.abs(weight) * sized,
        ),
        Quantity.of("d/dlam", in_lam, np.abs(weight) * of_norm, ~vanishing, None, np.abs(weight) * (norm(y) + norm(t))),
    ]


def _in_k(given: Numbers, of: Solved, moved: _Targets, smooth: bool) -> tuple[Reals, Reals, Flags, Reals, Reals]:
    """``gamma``, and where targets move with ``k`` what they add; from either side where there are two.

    The derivative of ``T_i`` in ``t_i`` is ``lam t_i^(p - 1) - a_i``, and the targets' derivatives sum to 1.
    """
    root, rounded, lam, order = of.root, of.rounded, of.by.lam, of.by.order
    present = given.present
    sides, sizes = [], []
    for end in (root.high, root.low):
        at = np.where(root.hard, np.where(np.isfinite(end), end, np.nan), root.gamma)
        if smooth:
            parts = (
                np.where(present, lam * power(moved.t, order), 0.0),
                np.where(present, root.gap + (root.gamma - at), 0.0),
            )
            sides.append(_total((parts[0] - parts[1]) * moved.grows))
            sizes.append(_total((np.abs(parts[0]) + np.abs(parts[1])) * moved.grows) + lam)
        else:
            sides.append(at)
            sizes.append(np.abs(at) + lam)
    left, right = sides
    available = _total(present)
    # At most as many are selected as take part; n itself is the end of the range of k.
    right = np.where(given.k < available, right, np.where(available < root.s.shape[1], 0.0, np.nan))
    left = np.where(given.k == 0, np.nan, np.where(given.k > available, 0.0, left))
    one, other = np.where(np.isfinite(left), left, right), np.where(np.isfinite(right), right, left)
    size = np.where(available > 0, np.fmax(*sizes), 0.0)
    error = rounded.level + (rounded.adding + 8 * rounded.unit) * size
    return one, error, np.isfinite(one) & ~moved.kink, other, size
