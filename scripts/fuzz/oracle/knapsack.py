"""The relaxed knapsack from the equation of its price, ``gamma``:

    z_i = clip(t_i, 0, u_i ** (p - 1)) ** e,        t_i = (x_i - gamma c_i) / lam,        sum_i c_i z_i = k,

with ``e = 1 / (p - 1)``, costs ``c`` and caps ``u``. A computation is let off with each position wrong by some units of
itself and of ``x_i / lam``, as what entries are worth for their cost is a quotient of ``x``, and with the sum off by
what adding up may do. So its price lies between those of two other problems, one with all positions too high by as
much, and one with all too low; and each ``z`` between what these two make of it.
"""

import dataclasses

import numpy as np

from scripts.fuzz.oracle.equation import strength
from scripts.fuzz.oracle.reals import Flags, Real, Reals, power, real
from scripts.fuzz.oracle.rounding import Precision
from scripts.fuzz.oracle.topk import Truth
from scripts.fuzz.quantity import Quantity

_HALVINGS = 160


@dataclasses.dataclass(frozen=True)
class Wares:
    """Rows of what there is: entries, costs, caps and which take part, ``(rows, n)``; scalars ``(rows, 1)``."""

    x: Reals
    cost: Reals
    cap: Reals
    present: Flags
    k: Reals
    lam: Reals
    order: Real
    exponent: Real

    @property
    def top(self) -> Reals:
        """The position from which on all there is is taken."""
        return power(self.cap, self.order)

    def position(self, price: Reals) -> Reals:
        """At most 0 where nothing is taken."""
        return (self.x - price * self.cost) / self.lam

    def taken(self, t: Reals) -> Reals:
        """``z`` of these positions."""
        return np.where(self.present, power(np.clip(t, 0, self.top), self.exponent), 0)

    def spent(self, t: Reals) -> Reals:
        """Of the budget."""
        return (self.cost * self.taken(t)).sum(axis=1, keepdims=True)

    def price(self, k: Reals, off: Reals) -> Reals:
        """At which ``k`` is spent, where positions are off by as much."""
        width = self.lam * (self.top + np.abs(off)) / self.cost
        worth = self.x / self.cost
        low = np.where(self.present, worth - width, np.inf).min(axis=1, keepdims=True) - 1
        high = np.where(self.present, worth + width, -np.inf).max(axis=1, keepdims=True) + 1
        low, high = (np.where(np.isfinite(end), end, 0) for end in (low, high))
        for _ in range(_HALVINGS):
            middle = low + (high - low) / 2
            more = self.spent(self.position(middle) + off) > k
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return low + (high - low) / 2


def expect(
    x: np.ndarray,
    cost: np.ndarray,
    cap: np.ndarray,
    where: Flags,
    k: np.ndarray,
    lam: np.ndarray,
    p: float,
    precision: Precision,
    cotangent: np.ndarray,
) -> Truth:
    """What is taken, and its derivatives in ``x``, ``k`` and ``lam``, weighted by ``cotangent``."""
    entries = real(x)
    nan = np.any(np.isnan(entries) & where, axis=1, keepdims=True)
    present = where & np.isfinite(entries)
    by = strength(real(lam)[:, None], p)
    of = Wares(
        np.where(present, entries, 0), real(cost), real(cap), present, real(k)[:, None], by.lam, by.order, by.exponent
    )
    with np.errstate(all="ignore"):
        answers = _answers(of, precision, np.where(present, real(cotangent), 0))
    return Truth(answers, nan, np.zeros_like(nan))


def _answers(of: Wares, precision: Precision, h: Reals) -> list[Quantity]:
    unit, e = precision.unit, of.exponent
    n = of.x.shape[1]
    everything = np.where(of.present, of.cost * of.cap, 0).sum(axis=1, keepdims=True)
    k = np.minimum(of.k, everything)
    price = of.price(k, np.zeros_like(of.x))
    t = of.position(price)
    adding = unit * (8 + 0.5 * n)
    # Nothing, and everything, are exact; but what everything costs is a sum, which a budget as large may fall short of.
    edge = (k == 0) | (of.k >= everything * (1 + adding))
    z = np.where(of.present & (k > 0), np.where(k == everything, of.cap, of.taken(t)), 0)
    off = unit * (4 * np.abs(t) + 4 * np.abs(of.x) / of.lam)
    own = unit * (4 * e + 4 + np.abs(np.log2(np.where(z > 0, z, 1)))) * z
    error = adding * k + (of.cost * own).sum(axis=1, keepdims=True)
    dear = of.position(of.price(np.maximum(k - error, 0), off))
    cheap = of.position(of.price(np.minimum(k + error, everything), -off))
    most, least = of.taken(np.maximum(cheap, t) + off), of.taken(np.minimum(dear, t) - off)
    bound = np.where(edge, 0, np.maximum(most - z, z - least)) + own

    wrong = np.maximum(np.abs(cheap - t), np.abs(t - dear)) + off  # a position
    top = of.top
    kink = of.present & ((np.abs(t) <= wrong) | (np.abs(t - top) <= wrong))
    part = of.present & (t > 0) & (t < top)
    some = np.where(part, t, 1)
    slope = np.where(part, e / of.lam * power(some, e - 1), 0)
    ragged = np.where(part, (e - 1) * wrong / some * 2 + unit * (4 * e + 16), 0) + adding

    def total(values: Reals) -> Reals:
        return values.sum(axis=1, keepdims=True)

    pull = total(of.cost**2 * slope)
    held = np.where(pull > 0, pull, 1)
    share = total(of.cost * slope * h) / held
    share_error = total(of.cost * slope * ragged * (np.abs(h) + np.abs(of.cost * share))) / held
    rest = h - of.cost * share
    size = np.abs(h) + np.abs(of.cost * share)
    of_rest = of.cost * share_error + unit * size
    in_lam = -total(slope * some * rest)
    judged = ~kink.any(axis=1, keepdims=True) & (ragged < 0.1).all(axis=1, keepdims=True) & ~edge
    largest = np.abs(h).max(axis=1, keepdims=True)
    return [
        Quantity.of("value", z, bound),
        Quantity.of(
            "d/dx", slope * rest, slope * (ragged * size + of_rest), judged, None,
            (slope * size).max(axis=1, keepdims=True) + slope.max(axis=1, keepdims=True) * largest,
        ),
        Quantity.of("d/dk", share, share_error, judged & (pull > 0), None, total(of.cost * slope * np.abs(h)) / held),
        Quantity.of(
            "d/dlam", in_lam, total(slope * some * (2 * ragged * size + of_rest)), judged, None,
            total(slope * some * size),
        ),
    ]  # fmt: skip
