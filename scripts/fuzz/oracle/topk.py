"""Answers for rows of the top-k operators, with the conventions for absent and infinite entries and for ``lam = 0``."""

import dataclasses

import numpy as np

from scripts.fuzz.oracle import derivative, hard, operator
from scripts.fuzz.oracle.equation import Curve
from scripts.fuzz.oracle.operator import Solved, solved
from scripts.fuzz.oracle.reals import Flags, Reals, power, real
from scripts.fuzz.oracle.rounding import Precision
from scripts.fuzz.quantity import Quantity


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Rows as the oracle's numbers: entries ``(rows, n)``; ``k`` and ``lam`` ``(rows, 1)``.

    Attributes:
      x: finite; 0 where absent or infinite.
      present: entries that take part and are finite.
      highest: entries equal to ``inf``, which come first.
      nan: rows with a NaN, shape ``(rows, 1)``.
      k: how much is selected.
      lam: strength.
    """

    x: Reals
    present: Flags
    highest: Flags
    nan: Flags
    k: Reals
    lam: Reals


@dataclasses.dataclass(frozen=True)
class Truth:
    """What an operator should return for some rows.

    Attributes:
      quantities: its value and derivatives.
      nan: rows that should be NaN, shape ``(rows, 1)``.
      free: rows with infinite entries other than absent ones, of which the derivatives may be anything.
    """

    quantities: list[Quantity]
    nan: Flags
    free: Flags


def numbers(x: np.ndarray, where: np.ndarray, k: np.ndarray, lam: np.ndarray, even: bool) -> Numbers:
    """What is drawn, or given, for the oracle."""
    entries = real(x)
    nan = (np.isnan(entries) & where).any(axis=1, keepdims=True)
    highest = where & (np.isinf(entries) if even else entries == np.inf)
    present = where & np.isfinite(entries)
    return Numbers(np.where(present, entries, 0.0), present, highest, nan, real(k)[:, None], real(lam)[:, None])


def expect(
    of: Numbers,
    p: float,
    curve: Curve,
    precision: Precision,
    cotangent: np.ndarray,
    debias: bool = False,
) -> Truth:
    """The answers for the operator of ``curve``, weighted by ``cotangent`` before it is differentiated."""
    weights = real(cotangent)
    sign = np.sign(of.x) if curve.even else np.ones_like(of.x)
    keys = np.abs(of.x) if curve.even else of.x
    first = of.highest.sum(axis=1, keepdims=True)
    enough = first > of.k
    vanishing = of.lam == 0
    with np.errstate(all="ignore"):
        relaxed = solved(
            keys,
            of.present & ~enough,
            np.maximum(of.k - first, 0),
            np.where(vanishing, 1, of.lam),
            p,
            curve,
            precision,
            debias,
        )
        answers = [operator.value(relaxed, sign), *derivative.gradient(relaxed, sign, weights)]
        if curve.name == "half_square":
            answers[1] = _with_zeros(of, answers[1], p, precision, weights, debias)
        limit = _hard(of, keys, sign, p, curve, precision, weights)
    answers = [soft.where(vanishing, exact) for soft, exact in zip(answers, limit, strict=True)]
    if first.any():
        unit = precision.unit * (8 + 8 / (p - 1) + first)
        answers = [_with_infinities(of, answer, first, vanishing, curve.even, unit) for answer in answers]
    return Truth(answers, of.nan, first > 0)


def _hard(
    of: Numbers, keys: Reals, sign: Reals, p: float, curve: Curve, precision: Precision, weights: Reals
) -> list[Quantity]:
    """At ``lam = 0``: all but the derivative in ``lam``, of which only the size is known, as it may overflow.

    That in ``k`` is of the last entry selected, of ties by index: from the left but for ``k = 0``, where it is of the
    first that would be.
    """
    first = of.highest.sum(axis=1, keepdims=True)
    s = np.where(of.present, keys, -np.inf)
    z = hard.chosen(s, np.maximum(of.k - first, 0))
    slope = curve.slope(keys)
    error = (np.abs(keys) + 4 if curve.name == "exp" else 1.0) * precision.unit * slope * z
    error = np.where(z % 1 == 0, 0.0, precision.unit * slope) if curve.linear else error
    untied = ~hard.tied(s, z)
    nobody = np.zeros_like(untied)
    nothing = np.zeros_like(of.k)
    grows = z * curve.curvature(keys) * weights
    left = np.maximum(of.k - first, 0)
    before = hard.chosen(s, np.where(left == 0, 1, np.ceil(left)))
    last = np.where(before > hard.chosen(s, np.ceil(left) - 1), sign * slope * weights, 0.0)
    in_k = np.where(left > of.present.sum(axis=1, keepdims=True), 0.0, last.sum(axis=1, keepdims=True))
    by_lam = np.abs(z * curve.curvature(keys) * power(np.abs(slope), p - 1) * weights).sum(axis=1, keepdims=True)
    of_k = (np.where(last == 0, 0.0, np.abs(keys)) + 8).max(axis=1, keepdims=True) * precision.unit * np.abs(in_k)
    return [
        Quantity.of("value", np.where(z == 0, 0.0, sign * slope * z), error),
        Quantity.of("d/dx", grows, (np.abs(keys) + 8) * precision.unit * np.abs(grows), untied),
        Quantity.of("d/dk", in_k, of_k),
        Quantity.of("d/dlam", nothing, nothing, nobody, None, by_lam),
    ]


def _with_zeros(of: Numbers, in_x: Quantity, p: float, precision: Precision, weights: Reals, debias: bool) -> Quantity:
    """``half_square`` selects no entry that is 0, but where there is room for such entries they move as if selected.

    Where there is room for a part of one, or for some in the order in which they come, it is let off up to that.
    """
    number, zero = of.present.sum(axis=1, keepdims=True), of.present & (of.x == 0)
    others = number - zero.sum(axis=1, keepdims=True)
    room = zero & (of.k > others)
    share, sure = share_at_zero(of.k, others, number, of.lam, p)
    moves = weights * (1 if debias else 1 / (1 + of.lam) if p == 2 else of.lam == 0)
    wanted = np.where(room, moves * share, in_x.wanted)
    bound = np.where(room, np.where(sure, 4 * precision.unit, 1.0) * np.abs(moves), in_x.bound)
    return dataclasses.replace(in_x, wanted=wanted, other=wanted, bound=bound)


def share_at_zero(k: Reals, others: Reals, number: Reals, lam: Reals, p: float) -> tuple[Reals, Flags]:
    """How magnitudes that are 0 move, as a share of how selected ones do, and where there is no doubt about it.

    Where there is room for less than one, it is as little as all would move if each were as large as the others, on
    average over signs.
    """
    left, zeros = k - others, number - others
    with np.errstate(all="ignore"):
        alike = (1 + lam) * (left + (zeros - 1) / lam) / (zeros + lam * left)
    share = np.where(left < 1, np.fmin(alike, 1), 1) if p == 2 else np.ones_like(left)
    share = np.where((k >= number) | ((left > 0) & (lam > 0)), np.where(k >= number, 1, share), 0)
    return share, (k >= number) | ((left >= 1) & (lam > 0)) | (left <= 0)


def _with_infinities(
    of: Numbers, answer: Quantity, first: Reals, vanishing: Flags, even: bool, unit: float | Reals
) -> Quantity:
    """Entries equal to ``inf`` are selected before all others; too many of them share, the first first if ``lam`` is 0.

    Nothing is said of infinite magnitudes. A share is let off with ``unit``, as is what k leaves to others.
    """
    if even or answer.name != "value":
        defined = (first == 0) | ((first < of.k) & (not even) & (answer.name != "d/dk"))
        return dataclasses.replace(answer, judged=answer.judged & defined)
    keys = np.where(of.highest, 1.0, -np.inf)
    share = np.where(vanishing, hard.chosen(keys, of.k), np.minimum(of.k / np.maximum(first, 1), 1))
    wanted = np.where(of.highest, share, answer.wanted)
    bound = np.where(of.highest, unit * (share % 1 != 0), answer.bound + unit * (answer.bound > 0))
    return dataclasses.replace(answer, wanted=wanted, other=wanted, bound=bound)


def solve_masked(of: Numbers, p: float, curve: Curve, precision: Precision) -> Solved:
    """The relaxed operator solved, 1 being taken for a ``lam`` that is 0."""
    keys = np.abs(of.x) if curve.even else of.x
    lam = np.where(of.lam == 0, 1, of.lam)
    with np.errstate(all="ignore"):
        return solved(keys, of.present, of.k, lam, p, curve, precision)
