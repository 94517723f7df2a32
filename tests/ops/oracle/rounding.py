"""How far rounding may take an honest computation: as far as the answer goes where numbers are off by some units.

With a unit the distance from 1 to the next number of the precision that is judged, a computation is let off with
answers to problems in which each entry's distance from the threshold, the strength, ``p - 1`` and each weight of the
output are off by ``UNITS`` of themselves, and ``k`` by as much and by what adding up a row may do. An error of a unit
of an entry itself is not let off: it may be a million widths away from 0. At a kink, answers to such problems lie
apart, and so anything between them is right.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from tests.ops.oracle.problem import Answer, Problem
from tests.ops.oracle.reals import Reals

UNITS = 16


@dataclasses.dataclass(frozen=True)
class Expected:
    """An array that an operator should return, and how far from it rounding may lead.

    Attributes:
      wanted: NaN where there is no one right answer.
      other: a second right answer, else ``wanted`` again.
      allowed: the largest error that is put down to rounding.
      scale: the size of what it is made of, shape ``(rows, 1)``.
    """

    wanted: Reals
    other: Reals
    allowed: Reals
    scale: Reals


def expected(oracle: Callable[[Problem], Answer], of: Problem) -> dict[str, Expected]:
    """The right answer of the operator for a problem."""
    answer = oracle(of)
    spread = {name: np.zeros_like(values) for name, values in answer.wanted.items()}
    if answer.reach.any() or answer.loose.any():
        for moved in _moved(of, answer):
            for name, found in oracle(moved).wanted.items():
                away = np.abs(found - answer.wanted[name])
                spread[name] = np.maximum(spread[name], np.where(np.isnan(found), np.inf, away))
    # Where a value is hardly known, entries have changed places, and any derivative may lie between.
    lost = (spread["value"] > 0.01 * answer.scale["value"]).any(axis=1, keepdims=True)
    for name in answer.wanted:
        if name != "value":
            spread[name] = np.where(lost, np.inf, spread[name])
    return {
        name: Expected(
            wanted, answer.other.get(name, wanted), 2 * spread[name] + answer.slack[name], answer.scale[name]
        )
        for name, wanted in answer.wanted.items()
    }


def _moved(of: Problem, answer: Answer) -> list[Problem]:
    """Problems a few roundings away, in pairs of opposite ones, so that of a kink both sides are seen.

    Neighbours move apart, so that ties break, and the neighbours of neighbours; the sum moves with the strength, and
    against it, and by itself, as what it does may be what neighbours undo. The strength moves less than entries, as
    otherwise a gap that is just as wide would stay so.
    """
    off = UNITS * of.unit
    rank = np.argsort(np.argsort(of.x, axis=1, kind="stable"), axis=1)
    places = np.arange(of.cotangent.shape[1])
    problems = []
    for way in (1, -1):
        summed = dataclasses.replace(of, k=np.maximum(of.k + way * of.unit * answer.loose, 0))
        problems.append(summed)
        for period in (1, 2):
            signs = way * (1.0 - 2 * (rank // period % 2))
            problems.append(
                dataclasses.replace(
                    summed,
                    x=of.x + np.where(answer.reach > 0, off * signs * answer.reach, 0),
                    lam=of.lam * (1 + (3 - 2 * period) * way * 0.6 * off),
                    cotangent=of.cotangent * (1 + off * way * (1 - 2 * (places // period % 2))),
                    order=of.order * (1 + way * (of.unit if of.order != 1 else 0)),
                )
            )
    return problems
