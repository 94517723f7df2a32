"""Rows of problems, and what an operator should return for them."""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from tests.ops.oracle.reals import Flags, Real, Reals, real


@dataclasses.dataclass(frozen=True)
class Problem:
    """Rows of numbers in extended precision.

    Attributes:
      x: entries, shape ``(rows, n)``; anything where absent.
      k: shape ``(rows, 1)``, as all scalars of a row.
      lam: strength.
      cotangent: weights of the outputs whose weighted sum is differentiated, shape ``(rows, n)`` or ``(rows, 1)``.
      where: entries that take part.
      extra: targets, costs, weights or limits, shape ``(rows, n)``.
      order: ``p - 1``.
      unit: distance from 1 to the next number in the precision that is judged.
    """

    x: Reals
    k: Reals
    lam: Reals
    cotangent: Reals
    where: Flags
    extra: Reals
    order: Real
    unit: float

    @property
    def exponent(self) -> Real:
        """``1 / (p - 1)``."""
        return 1 / self.order

    @property
    def tiny(self) -> float:
        """The least normal number of that precision."""
        return 2.0**-126 if self.unit > 1e-10 else 2.0**-1022


def problem(
    x: ArrayLike,
    k: ArrayLike,
    lam: ArrayLike,
    p: float = 2.0,
    *,
    cotangent: ArrayLike = 1.0,
    where: ArrayLike = True,
    extra: ArrayLike = 0.0,
    unit: float = 2.0**-52,
) -> Problem:
    """A problem of rows ``x``; ``k`` and ``lam`` are scalars or one per row."""
    x = real(x)
    column = (len(x), 1)
    k, lam = (np.broadcast_to(np.reshape(real(value), (-1, 1)), column) for value in (k, lam))
    weights = np.broadcast_to(real(cotangent), column if np.shape(cotangent) == column else x.shape)
    return Problem(
        x, k, lam, weights, np.broadcast_to(where, x.shape), np.broadcast_to(real(extra), x.shape), Real(p) - 1, unit
    )


@dataclasses.dataclass(frozen=True)
class Answer:
    """Value and derivatives by name: ``value``, ``x``, ``k`` and ``lam``.

    Attributes:
      wanted: shape ``(rows, n)`` or ``(rows, 1)``; NaN where there is no one right answer.
      slack: absolute errors that are let off, besides what changes with the numbers of the problem.
      reach: what the rounding of an entry is relative to, shape ``(rows, n)``; its distance from the threshold.
      scale: the size of what a derivative is made of, shape ``(rows, 1)``; factors of it may underflow.
      loose: by how many units what is to sum to ``k`` may be off, shape ``(rows, 1)``, or a column for each run, which
        has a sum of its own; 0 where none is cut in part.
      other: second right answers, such as the derivative from the other side.
    """

    wanted: dict[str, Reals]
    slack: dict[str, Reals]
    reach: Reals
    scale: dict[str, Reals]
    loose: Reals
    other: dict[str, Reals] = dataclasses.field(default_factory=dict)


def total(values: Reals | Flags) -> Reals:
    """Sums of rows, shape ``(rows, 1)``."""
    return values.sum(axis=1, keepdims=True)


def sizes_of(wanted: dict[str, Reals]) -> dict[str, Reals]:
    """Largest entries of rows, shape ``(rows, 1)``."""
    return {name: np.abs(np.nan_to_num(values)).max(axis=1, keepdims=True) for name, values in wanted.items()}
