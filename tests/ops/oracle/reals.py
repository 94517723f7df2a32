"""The numbers of the oracle, and the two things it does with them: powers, and bisection.

``numpy.longdouble`` has 64 bits of mantissa on x86 (113 where it is done in software) and 15 of exponent: what a
float64 can tell apart is resolved 2000 times more finely, and ``1e30 ** 100`` does not overflow. Where it is no more
than a float64 (Windows, macOS on ARM), problems in float64 cannot be judged, and are tried in float32.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Real = np.longdouble
Reals = NDArray[Any]  # of Real
Flags = NDArray[np.bool_]

EPS = float(np.finfo(Real).eps)
EXTENDED = EPS < 1e-18

_SMALLEST = Real("1e-4900" if EXTENDED else "1e-300")
# Halvings of the exponent that bring any two numbers within a factor two; then of what lies between them.
_OF_THE_EXPONENT, _OF_THE_REST = 16, 66


def real(value: ArrayLike) -> Reals:
    """Any array as the oracle's numbers, exactly."""
    array = np.asarray(value)
    return (array if array.dtype.kind in "fiub" else array.astype(np.float32)).astype(Real)


def power(t: Reals, exponent: Any) -> Reals:
    """``t ** exponent`` for ``t >= 0``: its error is ``|log2(result)|`` units of rounding of the result."""
    whole = float(exponent)
    if whole in (1.0, 2.0, 3.0, 4.0):
        return t if whole == 1 else t * t if whole == 2 else t * t * t if whole == 3 else (t * t) * (t * t)
    with np.errstate(divide="ignore"):
        return np.exp2(exponent * np.log2(t))  # NumPy's own power takes four times as long


def bisect(too_large: Callable[[Reals], Flags], upper: Reals) -> Reals:
    """The positive number from which on ``too_large`` holds, to the last bit, for each entry of ``upper``.

    The exponent is halved first, so that roots of any scale are found with full relative precision.
    """
    low, high = np.full_like(upper, _SMALLEST), np.maximum(upper, _SMALLEST)
    for step in range(_OF_THE_EXPONENT + _OF_THE_REST):
        between = np.sqrt(low) * np.sqrt(high) if step < _OF_THE_EXPONENT else low + 0.5 * (high - low)
        large = too_large(between)
        low, high = np.where(large, low, between), np.where(large, between, high)
    return low + 0.5 * (high - low)
