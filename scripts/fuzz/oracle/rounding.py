"""How far rounding may take the solution of the scalar equation: what is called wrong is wrong by these bounds.

With ``u`` the distance from 1 to the next number of the working precision, a computation is let off with

- each position ``t_i = (s_i - gamma) / W(gamma)`` wrong by ``POSITION * u`` of itself: the roundings of two
  subtractions (``gamma`` being held in two numbers), a width, a quotient. Not by the roundings of ``gamma`` itself
  in one number: ``s_i`` may be a million widths away from 0;
- a power wrong by ``2 + |log2 z|`` units of itself, as that of ``exp2(e * log2(t))``, besides the ``e`` errors of ``t``
  that a power multiplies by ``e = 1 / (p - 1)``; ``p`` itself wrong by half a unit of a float64, as where 1.1 is taken
  for eleven tenths, which both powers (of ``t`` and of the width) feel by the logarithm of their base. Together these
  are ``own``;
- the sum ``sum(z) = k`` met but for ``own`` of every term, for ``n / 2`` units for adding up ``n`` terms (the worst
  order of additions), and 4 units at which a search may stop, of the sum over entries partly selected or of ``k`` if
  that is below 1;
- ``gamma`` found so well that no ``t`` moves by more than half a unit of 1, if not better.

The last two say how far ``gamma`` may be off: by the error of the sum, divided by the slope of the sum (doubled, for
what the slope changes by on the way, and without entries that come to 0 or 1 on the way), and those half units; but by
no more than makes one entry's ``z`` the error of the sum. Everything else follows by moving ``gamma`` and each ``t`` by
as much, as the oracle does; no bound is fitted to what was seen. An error of a unit of ``s`` itself is *not* let off.
"""

from typing import NamedTuple

import numpy as np

from scripts.fuzz.oracle.equation import Curve, Root, Strength, excess
from scripts.fuzz.oracle.reals import Flags, Real, Reals, power


class Precision(NamedTuple):
    """Of a floating type: the distance from 1 to the next number, and the least normal number."""

    unit: float
    tiny: float


class Rounding(NamedTuple):
    """Errors let off, absolute ones; shape ``(rows, 1)``, but for ``own`` and ``t``, ``(rows, n)``.

    Attributes:
      unit: ``u``.
      tiny: what is below it may come out as 0.
      own: of ``z`` by its own rounding, relative to ``z``, in units.
      total: of the sum of what is selected.
      gamma: of the threshold; of one in an interval, of its ends within which every threshold does.
      level: of the threshold as a number, even in an interval.
      shift: of ``t`` through that of the threshold alone, at a fixed width.
      t: of the position.
      adding: of a sum over a row, relative to the sum of magnitudes.
      steady: whether the threshold is so certain that derivatives can be: of a sum much larger than its error.
    """

    unit: float
    tiny: float
    own: Reals
    total: Reals
    gamma: Reals
    level: Reals
    shift: Reals
    t: Reals
    adding: Reals
    steady: Flags


def rounding(root: Root, by: Strength, curve: Curve, precision: Precision) -> Rounding:
    """The errors let off in the solution of these rows."""
    with np.errstate(all="ignore"):
        return _rounding(root, by, curve, precision)


def _rounding(root: Root, by: Strength, curve: Curve, precision: Precision) -> Rounding:
    unit, tiny = precision
    z, width = root.z, root.width
    # By how many units a power of this base is wrong through p alone.
    of_p = 2.0**-53 / unit * (1 + by.order)
    if curve.linear:
        position, widening = np.full_like(width, 2.0), np.zeros_like(width)
    elif curve.name == "half_square":
        base = np.where(root.gamma > 0, root.gamma, 1)
        position, widening = 5.0 + (by.order + of_p) * np.abs(np.log2(base)), by.order * width / base
    else:  # the argument of an exponential, of which it magnifies the absolute error
        position, widening = 5.0 + (by.order + of_p) * (np.abs(root.gamma) + 3), by.order * width
    # Of an interval no longer than a rounding nobody can tell that it is one.
    touching = root.hard & ((root.t >= 1) & (root.t - 1 <= 2 * unit * position)).any(axis=1, keepdims=True)
    # Entries just about to be selected fully hold the threshold, too.
    partly = (z > 0) & (root.t - 1 <= np.where(touching, 2 * position, 1) * unit) & (~root.hard | touching)
    t = np.where(partly, root.t, 1.0)
    own = by.exponent * position + 2 + (1 + of_p * by.exponent) * np.abs(np.log2(np.where(z > 0, z, 1.0)))
    own = np.where(z > 0, own, 0.0)
    adding = unit * (4.0 + 0.5 * np.isfinite(root.s).sum(axis=1, keepdims=True))

    mass = np.where(partly, z, 0.0)
    total = mass.sum(axis=1, keepdims=True)
    error = unit * (own * mass).sum(axis=1, keepdims=True) + adding * (total + np.minimum(root.k, 1))

    slopes = by.exponent * mass / t * (1 + t * widening) / width
    reached = 2 * error / slopes.sum(axis=1, keepdims=True) / width * (1 + widening * t)
    slope = np.where((t > reached) & (t < 1 - reached), slopes, 0.0).sum(axis=1, keepdims=True)
    flat = width * power(error, 1 / by.exponent)
    if curve.name == "half_square":  # gamma > 0
        flat = np.minimum(flat, root.gamma)
    elif curve.name == "exp":  # z falls at least as exp(-gamma) does
        flat = np.minimum(flat, -np.log(Real(tiny)))
    resolution = 0.5 * unit * width / (1 + widening)
    resting = root.pinned & (excess(root.s, by.lam, root.k, by) < -error)
    certain = (root.hard & ~touching) | resting
    steady = certain | ((error <= total / 8) & (slope > 0))
    gamma = np.where(steady, np.minimum(2 * error / np.where(slope > 0, slope, 1), flat), flat)
    gamma = np.where(certain, 0.0, gamma) + np.where(resting, 0.0, resolution)
    level = np.where(root.hard, flat, gamma)
    lost = 0.0 if curve.linear else 2 * tiny  # by both subtractions of the threshold, within a width that is a product
    shift = np.where(width > 0, (gamma + lost) / np.where(width > 0, width, 1), 0.0)
    reach = np.clip(root.t, 0, 2)
    at = unit * position * np.abs(root.t) + shift * (1 + reach * widening)
    return Rounding(unit, tiny, own, error, gamma, level, shift, at, adding, steady)


def moved(root: Root, by: Strength, rounded: Rounding) -> Reals:
    """The most that ``z`` changes by where the threshold is wrong by as much as is let off.

    All entries then move the same way, so that none of them moves by more than their sum does.
    """

    def by_shift(shift: Reals) -> Reals:
        up = power(np.clip(root.t + shift, 0, 1), by.exponent) - root.z
        return np.maximum(up, root.z - power(np.clip(root.t - shift, 0, 1), by.exponent))

    # The threshold of a row of zeros of an even phi has no width, and no entry that could feel it.
    by_gamma = np.where(root.width > 0, rounded.gamma / np.where(root.width > 0, root.width, 1), 0.0)
    least = np.minimum(rounded.shift, 0.5 * rounded.unit + (rounded.shift - by_gamma))
    return np.minimum(by_shift(rounded.shift), rounded.total + by_shift(least))
