"""What every contestant should return, in NumPy and float64: another algorithm than that of ``ops``.

The scalar equation is solved per row by Brent's method between two order statistics found by partition. There is no
batching, and no JAX. Gradients are those of a weighted sum, by the implicit function theorem.
"""

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq

Kind = Literal["mask", "magnitude", "hard mask", "largest", "sorted"]


@dataclasses.dataclass(frozen=True)
class Reference:
    """A function of ``x`` and ``k``: a relaxed or hard mask, top-k in magnitude, the k largest values, or a sort."""

    kind: Kind
    p: float = 2.0
    lam: float = 1.0
    debias: bool = False


class Expected(NamedTuple):
    """The truth about some rows; ``decided`` is False where a float32 may fall on the other side of a kink."""

    output: np.ndarray
    gradient: np.ndarray
    decided: np.ndarray


def expected(reference: Reference, x: np.ndarray, k: int, weights: np.ndarray) -> Expected:
    """Output of the reference, and gradient of its sum weighted by ``weights``, on rows ``x`` of shape (rows, n)."""
    compute = {
        "mask": _relaxed,
        "magnitude": _relaxed,
        "hard mask": _hard,
        "largest": _ordered,
        "sorted": _ordered,
    }[reference.kind]
    rows = [compute(reference, row, k, c) for row, c in zip(x, weights, strict=True)]
    return Expected(*(np.stack(part) for part in zip(*rows, strict=True)))


def _hard(_: Reference, x: np.ndarray, k: int, weights: np.ndarray) -> Expected:
    del weights
    value = np.partition(x, len(x) - k)[len(x) - k]
    output = (x > value).astype(np.float64)
    output[np.flatnonzero(x == value)[: k - int(output.sum())]] = 1.0  # the first of the tied ones
    return Expected(output, np.zeros(len(x)), np.ones(len(x), bool))


def _ordered(reference: Reference, x: np.ndarray, k: int, weights: np.ndarray) -> Expected:
    descending = reference.kind == "largest"
    order = np.argsort(-x if descending else x, kind="stable")[: k if descending else None]
    gradient = np.zeros(len(x))
    gradient[order] = weights[: len(order)]
    return Expected(x[order].astype(np.float64), gradient, np.ones(len(x), bool))


def _relaxed(reference: Reference, x: np.ndarray, k: int, weights: np.ndarray) -> Expected:
    p, lam, power = reference.p, reference.lam, 1.0 / (reference.p - 1.0)
    magnitude = reference.kind == "magnitude"
    sign = np.sign(x).astype(np.float64) if magnitude else 1.0
    s = np.abs(x).astype(np.float64) if magnitude else x.astype(np.float64)

    def width(gamma: float) -> float:  # from the first entry selected at all to the first selected fully
        return lam * gamma ** (p - 1.0) if magnitude else lam

    gamma = _threshold(s, k, width, power, smallest=0.0 if magnitude else -np.inf)
    t = (s - gamma) / width(gamma)
    active, full = (t > 0) & (t < 1), t >= 1
    t = np.where(active, t, 0.0)
    scale = gamma if magnitude else 1.0  # phi'(gamma)
    partial = t**power * scale
    slope = np.where(active, power * t ** (power - 1.0), 0.0) * scale / width(gamma)  # d rho / ds

    full_slope = np.zeros_like(s)  # dy / ds of a fully selected entry
    moved = slope  # dy / ds of a partly selected one, at fixed gamma
    if not magnitude:
        output = np.where(full, 1.0, partial)
    elif reference.debias:
        output = np.where(full, s, partial + np.where(active, s - gamma, 0.0))
        full_slope[full] = 1.0
        moved = np.where(active, slope + 1.0, 0.0)
    else:
        kept = np.zeros_like(s)
        kept[full] = _shrunk(s[full], lam, p)
        output = np.where(full, kept, partial)
        full_slope[full] = 1.0 / (1.0 + lam * (p - 1.0) * kept[full] ** (p - 2.0))

    c = weights * sign
    total = slope.sum() + (t**power).sum() * (1.0 if magnitude else 0.0)  # z * phi''(gamma)
    gradient = np.where(full, c * full_slope, moved * c)
    if total > 0:
        gradient = gradient - slope * (moved @ c) / total
    near = 1e-6 * (1.0 + abs(gamma) + width(gamma))
    decided = (np.abs(s - gamma) > near) & (np.abs(s - gamma - width(gamma)) > near)
    return Expected(output * sign, gradient * sign, decided)


def _threshold(s: np.ndarray, k: int, width: Callable[[float], float], power: float, smallest: float) -> float:
    """The root gamma of ``sum(clip((s - gamma) / width(gamma), 0, 1) ** power) = k``, for ``0 < k < n``."""
    n = len(s)
    ordered = np.partition(s, (n - k - 1, n - k))
    last, following = ordered[n - k], ordered[n - k - 1]
    # At `low` the k largest are selected fully, and at `high` no more than they are selected at all.
    low, high = last - width(last), following
    if smallest == 0.0:
        low = brentq(lambda gamma: gamma + width(gamma) - last, 0.0, last, xtol=1e-300)
    if low >= high:
        return 0.5 * (low + high)
    upper = high + width(high)
    undecided = s[(s > low) & (s < upper)]
    rest = k - np.count_nonzero(s >= upper)

    def excess(gamma: float) -> float:
        return float((np.clip((undecided - gamma) / width(gamma), 0.0, 1.0) ** power).sum()) - rest

    return brentq(excess, low, high, xtol=1e-16, rtol=1e-15)


def _shrunk(s: np.ndarray, lam: float, p: float) -> np.ndarray:
    """The root y of ``y + lam * y ** (p - 1) = s > 0``, by Newton on the convex function of ``y ** (p - 1)``."""
    power = 1.0 / (p - 1.0)
    r = s ** (p - 1.0)
    for _ in range(60):
        step = (r**power + lam * r - s) / (power * r ** (power - 1.0) + lam)
        r = r - step
        if np.all(np.abs(step) <= 1e-15 * r):
            break
    return r**power
