"""What the oracle says of a value or of a derivative, and how far from it rounding may take an honest computation."""

import dataclasses

import numpy as np

from scripts.fuzz.oracle.reals import Flags, Reals


@dataclasses.dataclass(frozen=True)
class Quantity:
    """One array that an operator returns, for rows of problems.

    Attributes:
      name: ``value``, ``d/dx``, ``d/dk`` or ``d/dlam``.
      wanted: shape ``(rows, n)`` or ``(rows, 1)``.
      bound: the largest error that is put down to rounding, same shape.
      judged: whether there is one right answer, shape ``(rows, 1)``; not at a kink, within rounding.
      other: a second right answer, the derivative from the other side; else ``wanted`` again.
      scale: the size of what it is made of, shape ``(rows, 1)``, of which a unit of rounding is the unit of error.
    """

    name: str
    wanted: Reals
    bound: Reals
    judged: Flags
    other: Reals
    scale: Reals

    @classmethod
    def of(
        cls,
        name: str,
        wanted: Reals,
        bound: Reals,
        judged: Flags | None = None,
        other: Reals | None = None,
        scale: Reals | None = None,
    ) -> "Quantity":
        """With every row judged, one right answer, and the largest entry of it as the scale, unless told otherwise."""
        rows = (len(wanted), 1)
        judged = np.ones(rows, bool) if judged is None else np.broadcast_to(judged, rows)
        if scale is None:
            scale = np.where(np.isfinite(wanted), np.abs(wanted), 0).max(axis=1, keepdims=True)
        return cls(name, wanted, bound, judged, wanted if other is None else other, np.broadcast_to(scale, rows))

    def where(self, rows: Flags, instead: "Quantity") -> "Quantity":
        """``instead`` in the rows, shape ``(rows, 1)``, where that holds."""
        mine, theirs = vars(self), vars(instead)
        arrays = {name: np.where(rows, theirs[name], mine[name]) for name in mine if name != "name"}
        return Quantity(self.name, **arrays)
