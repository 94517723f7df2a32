"""Projections onto the permutahedron, from the formula for isotonic regression that needs no pooling.

With ``s`` and ``w`` in descending order, ``y_i = rho(s_i - v_i)``, ``rho(t) = sign(t) (|t| / lam) ** e``, where ``v``
is the descending sequence that solves the isotonic problem (Proposition 5). Its entries are (Robertson, Wright and
Dykstra, 1988) ``v_i = min over a <= i of max over b >= i of V(a, b)``, with ``V(a, b)`` the one value that entries
``a`` to ``b`` would have together, ``sum rho(s_j - V) = sum w_j``. All of these are computed, for short rows.
"""

import dataclasses

import numpy as np

from scripts.fuzz.oracle.equation import Strength, strength
from scripts.fuzz.oracle.reals import Reals, power, real
from scripts.fuzz.oracle.rounding import Precision
from scripts.fuzz.oracle.topk import Truth
from scripts.fuzz.quantity import Quantity

_HALVINGS = 100


@dataclasses.dataclass(frozen=True)
class _Blocks:
    """Rows in descending order of ``x``, each entry with the first and the last of its block, and ``s_i - v_i``."""

    s: Reals
    w: Reals
    first: np.ndarray
    last: np.ndarray
    gap: Reals

    def sum(self, values: Reals) -> Reals:
        """Of each entry's block."""
        zero = np.zeros((len(values), 1), values.dtype)
        running = np.concatenate([zero, np.cumsum(values, axis=1)], axis=1)
        return np.take_along_axis(running, self.last + 1, 1) - np.take_along_axis(running, self.first, 1)

    def max(self, values: Reals) -> Reals:
        """Of each entry's block."""
        index = np.arange(values.shape[1])
        same = (index >= self.first[:, :, None]) & (index <= self.last[:, :, None])
        return np.where(same, values[:, None, :], -np.inf).max(axis=2)


def _rho(t: Reals, by: Strength) -> Reals:
    return np.sign(t) * power(np.abs(t) / by.lam, by.exponent)


def _together(s: Reals, w: Reals, by: Strength) -> Reals:
    """``V - s_1`` of rows that form one block, shape ``(rows, 1)``."""
    count, sums = s.shape[1], w.sum(axis=1, keepdims=True)
    offsets = s - s[:, :1]
    if by.order == 1:
        return (offsets - by.lam * w).mean(axis=1, keepdims=True)
    reach = by.lam * power(np.abs(sums) / count, by.order)
    low, high = offsets[:, -1:] - reach, reach
    for _ in range(_HALVINGS):
        middle = low + (high - low) / 2
        below = _rho(offsets - middle, by).sum(axis=1, keepdims=True) > sums
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return low + (high - low) / 2


def _solve(s: Reals, w: Reals, by: Strength) -> _Blocks:
    """Blocks are the smallest there are, where several say the same.

    Values are held as a distance from the first entry of their block, so that they can be told apart however far from
    0 the entries are.
    """
    rows, n = s.shape
    nearby = np.zeros((n, n, rows), s.dtype)
    for a in range(n):
        for b in range(a, n):
            nearby[a, b] = _together(s[:, a : b + 1], w[:, a : b + 1], by)[:, 0]
    first, last = np.zeros((2, rows, n), np.int64)
    gap = np.zeros((rows, n), s.dtype)
    everyone = np.arange(rows)
    for i in range(n):
        end = i + np.argmax(nearby[i, i:], axis=0)
        start, best = np.full(rows, i), nearby[i, end, everyone]
        for a in reversed(range(i)):
            other = i + np.argmax(nearby[a, i:], axis=0)
            value = nearby[a, other, everyone]
            lower = (s[:, a] - s[everyone, start]) + (value - best) < 0
            start, end, best = np.where(lower, a, start), np.where(lower, other, end), np.where(lower, value, best)
        first[:, i], last[:, i] = start, end
        gap[:, i] = (s[:, i] - s[everyone, start]) - best
    return _Blocks(s, w, first, last, gap)


def expect(
    x: np.ndarray,
    w: np.ndarray,
    lam: np.ndarray,
    p: float,
    precision: Precision,
    cotangent: np.ndarray,
    of_weights: bool,
) -> Truth:
    """The projection of each row, and its derivatives in ``x`` (or in ``w``) and ``lam``, weighted by ``cotangent``."""
    entries, weights = real(x), real(w)
    vanishing = (lam == 0)[:, None]
    by = strength(np.where(vanishing, 1, real(lam)[:, None]), p)
    order, order_of_w = (np.argsort(-values, axis=1, kind="stable") for values in (entries, weights))
    s, sorted_w = np.take_along_axis(entries, order, 1), np.take_along_axis(weights, order_of_w, 1)
    h = np.take_along_axis(real(cotangent), order, 1)

    def in_place(values: Reals, places: np.ndarray = order) -> Reals:
        result = np.zeros_like(values)
        np.put_along_axis(result, places, values, 1)
        return result

    with np.errstate(all="ignore"):
        value, derivatives = _answers(_solve(s, sorted_w, by), by, precision, h)
    in_x, in_w, in_lam = derivatives
    nobody = np.zeros_like(vanishing)
    hard = Quantity.of("value", sorted_w, np.zeros_like(s))
    value = value.where(vanishing, hard)
    chosen, places = (in_w, order_of_w) if of_weights else (in_x, order)
    tied = (np.diff(sorted_w if of_weights else s, axis=1) == 0).any(axis=1, keepdims=True)
    answers = [
        dataclasses.replace(
            quantity,
            wanted=in_place(quantity.wanted, where),
            bound=in_place(quantity.bound, where),
            other=in_place(quantity.other, where),
        )
        for quantity, where in ((value, order), (dataclasses.replace(chosen, judged=chosen.judged & ~tied), places))
    ]
    answers.append(in_lam)
    answers[1:] = [dataclasses.replace(answer, judged=answer.judged & ~vanishing) for answer in answers[1:]]
    return Truth(answers, nobody, nobody)


def _answers(of: _Blocks, by: Strength, precision: Precision, h: Reals) -> tuple[Quantity, list[Quantity]]:
    unit, e, n = precision.unit, by.exponent, of.s.shape[1]
    alone = of.first == of.last
    y = np.where(alone, of.w, _rho(of.gap, by))
    steep = np.where(alone, 0.0, e * np.abs(y) / np.where(of.gap != 0, np.abs(of.gap), 1))
    if by.order == 1:
        steep = np.where(alone, 0.0, 1 / by.lam + 0 * y)
    pull = of.sum(steep)

    # Entries are let off with a rounding of their distance from the middle one, and block values with what that and
    # the sums make of it; where the slope vanishes, with as much as changes the sum by its error.
    distance = np.abs(of.s - of.s[:, n // 2 : n // 2 + 1])
    adding = unit * (4 + 0.5 * n)
    own = unit * (4 * e + 4 + np.abs(np.log2(np.where(y != 0, np.abs(y), 1)))) * np.abs(y)
    error_of_sum = of.sum(own + 2 * unit * steep * distance) + adding * of.sum(np.abs(y) + np.abs(of.w))
    level = np.where(pull > 0, error_of_sum / np.where(pull > 0, pull, 1), np.inf)
    level = np.minimum(2 * level, 2 * by.lam * power(error_of_sum / 2, by.order)) + unit * (np.abs(of.gap) + distance)
    slack = level + unit * (2 * np.abs(of.gap) + 2 * distance)
    error = np.maximum(_rho(of.gap + slack, by) - y, y - _rho(of.gap - slack, by)) + own
    # Two neighbouring blocks within their errors may be taken for one, and then share what they hold apart.
    drop = np.diff(of.gap, axis=1) - np.diff(of.s, axis=1)
    near = drop <= slack[:, 1:] + slack[:, :-1]
    near = near & (of.first[:, 1:] != of.first[:, :-1])
    beside = np.zeros_like(alone)
    beside[:, 1:] |= near
    beside[:, :-1] |= near
    most = of.max(np.where(beside, slack, 0.0))
    steepest = np.ones_like(y) if by.order == 1 else power((np.abs(of.gap) + 4 * most) / by.lam, e - 1)
    apart = e * steepest * 4 * most / by.lam
    touched = of.max(beside.astype(y.dtype)) > 0
    bound = np.where(alone & ~touched, 0.0, error + np.where(touched, apart, 0.0))
    scale = np.abs(of.w).max(axis=1, keepdims=True)
    # Sums over a block are differences of sums over the row.
    value = Quantity.of("value", y, bound + np.where(alone & ~touched, 0.0, adding * scale), scale=scale)

    # About to split: a part of a block that holds no less than its weights.
    running = np.concatenate([np.zeros_like(y[:, :1]), np.cumsum(of.w - y, axis=1)], axis=1)
    inner = running[:, 1:] - np.take_along_axis(running, of.first, 1)
    inside = np.arange(n) < of.last
    splits = (inside & (inner <= 4 * of.sum(error) + 1e-3 * unit)).any(axis=1, keepdims=True)
    flat = (~alone & (by.order != 1) & (slack > 1e-3 * np.abs(of.gap))).any(axis=1, keepdims=True)
    judged = ~(splits | flat | near.any(axis=1, keepdims=True))

    share = np.where(alone, 0.0, of.sum(steep * h) / np.where(pull > 0, pull, 1))
    relative = np.where(of.gap != 0, (e - 1) * slack / np.where(of.gap != 0, np.abs(of.gap), 1), 0.0)
    steep_error = steep * (relative + unit * (4 * e + 8)) * 2
    share_error = of.sum(steep_error * np.abs(h - share) + adding * steep * (np.abs(h) + np.abs(share)))
    share_error = share_error / np.where(pull > 0, pull, 1)
    in_x = steep * (h - share)
    in_x_error = steep_error * np.abs(h - share) + steep * share_error + 4 * unit * steep * (np.abs(h) + np.abs(share))
    in_w = np.where(alone, h, share)
    in_w_error = np.where(alone, 0.0, share_error) + 8 * unit * np.abs(in_w)
    paid = np.where(alone, 0.0, e * y / by.lam)
    in_lam = -(paid * (h - share)).sum(axis=1, keepdims=True)
    in_lam_error = e / by.lam * error * np.abs(h - share) + np.abs(paid) * (
        share_error + adding * (np.abs(h) + np.abs(share))
    )
    largest = np.abs(h).max(axis=1, keepdims=True)
    steepest = np.ones_like(y) if by.order == 1 else power((np.abs(of.gap) + slack) / by.lam, e - 1)
    scale_of_x = np.where(alone, 0.0, e / by.lam * steepest).max(axis=1, keepdims=True) * largest
    return value, [
        Quantity.of("d/dx", in_x, in_x_error, judged, None, scale_of_x),
        Quantity.of("d/dx", in_w, in_w_error, judged, None, largest),
        Quantity.of(
            "d/dlam", in_lam, np.where(alone, 0.0, in_lam_error).sum(axis=1, keepdims=True), judged, None,
            np.abs(paid * h).sum(axis=1, keepdims=True),
        ),
    ]  # fmt: skip
