"""The relaxed operators from the solution of the scalar equation."""

import dataclasses

import numpy as np

from scripts.fuzz.oracle.equation import Curve, Root, Strength, solve, strength, unshifted
from scripts.fuzz.oracle.reals import Flags, Reals
from scripts.fuzz.oracle.rounding import Precision, Rounding, moved, rounding
from scripts.fuzz.quantity import Quantity


@dataclasses.dataclass(frozen=True)
class Solved:
    """Rows of a relaxed operator, solved.

    Attributes:
      curve: ``phi``.
      by: strength and exponents.
      root: the threshold.
      rounded: what is let off.
      full: ``y`` of entries selected fully (and of those nearly so), 0 elsewhere.
      full_error: of ``full``, relative, in units.
      debias: whether a kept entry is given back what the regularisation takes.
      asked: ``k`` as it was asked for.
    """

    curve: Curve
    by: Strength
    root: Root
    rounded: Rounding
    full: Reals
    full_error: Reals
    debias: bool
    asked: Reals

    @property
    def slope(self) -> Reals:
        """``phi'(gamma)``."""
        return self.curve.slope(self.root.gamma)

    @property
    def partly(self) -> Flags:
        """Entries selected in part."""
        return (self.root.t > 0) & (self.root.t < 1) & ~self.root.hard

    @property
    def whole(self) -> Flags:
        """Entries selected fully."""
        return self.root.t >= 1

    @property
    def y(self) -> Reals:
        """What the regularisation has to do with: the operator without its signs, and before it is rescaled."""
        return np.where(self.whole, self.full, np.where(self.partly, self.root.z * self.slope, 0.0))

    def near(self, t: float) -> Flags:
        """Entries that rounding may move across position 0 or 1."""
        return np.isfinite(self.root.s) & (np.abs(self.root.t - t) <= self.rounded.t)


def solved(
    s: Reals, present: Flags, k: Reals, lam: Reals, p: float, curve: Curve, precision: Precision, debias: bool = False
) -> Solved:
    """Solves rows of entries ``s`` (magnitudes, if ``phi`` is even) of shape ``(rows, n)``.

    Args:
      s: finite where present.
      present: which entries take part.
      k: shape ``(rows, 1)``.
      lam: likewise, positive.
      p: as the operators take it.
      curve: ``phi``.
      precision: that is judged.
      debias: as ``topk_mag`` takes it.
    """
    by = strength(lam, p)
    root = solve(s, present, k, by, curve)
    rounded = rounding(root, by, curve, precision)
    full, error = np.zeros_like(root.s), np.zeros_like(root.s)
    above = root.t > 0.9
    if curve.linear:
        full[above] = 1.0
    elif debias:
        full[above] = root.s[above]
    else:
        of = root.s[above]
        lams = np.broadcast_to(lam, root.s.shape)[above]
        with np.errstate(all="ignore"):
            u = unshifted(of, lams, by, curve)
        full[above] = curve.slope(u)
        error[above] = _error_of_full(of, u, by, curve, precision.unit)
    return Solved(curve, by, root, rounded, full, error, debias, k)


def _error_of_full(s: Reals, u: Reals, by: Strength, curve: Curve, unit: float) -> Reals:
    """Relative error, in units, of ``y = phi'(u)`` with ``u + W(u) = s`` solved to the rounding of its terms."""
    if curve.name == "half_square":
        # Of y itself, or of c = y ** (p - 1) and then of its power; and of p.
        return 4 + 2 * by.exponent + (1 + 2.0**-53 / unit * by.exponent) * np.abs(np.log2(np.where(u > 0, u, 1.0)))
    width = s - u
    of_width = 3 + by.order * (np.abs(u) + 3)
    return (np.abs(s) + of_width * width) / (1 + by.order * width) + np.abs(u) + 4


def value(of: Solved, sign: Reals) -> Quantity:
    """The operator."""
    root, rounded, slope = of.root, of.rounded, of.slope
    unit, z = rounded.unit, root.z
    error = slope * (moved(root, of.by, rounded) + unit * rounded.own * np.where(of.partly, z, 0.0))
    error = error + np.where(of.partly | of.near(0.0), 4 * rounded.tiny * slope, 0.0)  # below which z is 0
    # Where an entry may be taken for selected fully, or not so: the difference that makes.
    below = of.near(1.0) & (root.t < 1) & (slope * (1 - z) <= error)
    above = of.near(1.0) & (root.t >= 1)
    error = error + np.where(below, (1 - z) * slope if of.debias else np.abs(of.full - slope * z), 0.0)
    error = error + np.where(above, rounded.total * (slope if of.debias else of.full), 0.0)
    error = error + np.where(root.t >= 1 - rounded.t, unit * of.full_error * of.full, 0.0)
    y = of.y
    if of.debias:
        left = np.where(of.partly, (1 - z) * root.gamma, 0.0)
        y = np.where(of.partly, root.gap + z * root.gamma, y)
        touched = of.partly | of.near(0.0) | of.near(1.0)
        error = error + np.where(touched, rounded.gamma + unit * (2 * left + y), 0.0)
    with np.errstate(invalid="ignore"):
        return Quantity.of("value", np.where(y == 0, 0.0, sign * y), error)
