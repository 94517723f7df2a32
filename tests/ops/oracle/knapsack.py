"""The relaxed knapsack from the equation of its price, ``gamma``:

    z_i = clip(t_i, 0, u_i ** (p - 1)) ** e,        t_i = (x_i - gamma c_i) / lam,        sum_i c_i z_i = k,

with ``e = 1 / (p - 1)``, costs ``c`` and caps ``u``.
"""

import numpy as np

from tests.ops.oracle.problem import Answer, Problem, sizes_of, total
from tests.ops.oracle.reals import Reals, power

_HALVINGS = 160


def knapsack(of: Problem, caps: Reals) -> Answer:
    """How much is taken, and its derivatives; costs are ``extra``, the budget ``k``."""
    with np.errstate(all="ignore"):
        return _knapsack(of, caps)


def _knapsack(of: Problem, caps: Reals) -> Answer:
    e, lam, cost = of.exponent, of.lam, of.extra
    present = of.where & np.isfinite(of.x)
    x, h = np.where(present, of.x, 0), np.where(present, of.cotangent, 0)
    top = power(caps, of.order)  # the position from which on all there is is taken

    def taken(t: Reals) -> Reals:
        return np.where(present, power(np.clip(t, 0, top), e), 0)

    everything = total(np.where(present, cost * caps, 0))
    k = np.minimum(of.k, everything)
    low = np.where(present, (x - lam * top) / cost, np.inf).min(axis=1, keepdims=True)
    high = np.where(present, x / cost, -np.inf).max(axis=1, keepdims=True)
    low, high = (np.where(np.isfinite(end), end, 0) for end in (low, high))
    for _ in range(_HALVINGS):
        price = low + (high - low) / 2
        more = total(cost * taken((x - price * cost) / lam)) > k
        low, high = np.where(more, price, low), np.where(more, high, price)
    t = (x - low * cost) / lam
    # What everything costs is a sum: whether a budget as large falls short of it, or exceeds it, is up to rounding.
    adding = of.unit * (8 + 0.5 * x.shape[1])
    edge = (k == 0) | (of.k >= everything * (1 + adding))
    near = edge | (of.k >= everything * (1 - adding))
    z = np.where(present & (k > 0), np.where(k == everything, caps, taken(t)), 0)

    part = present & (t > 0) & (t < top)
    slope = np.where(part, e / lam * power(np.where(part, t, 1), e - 1), 0)
    pull = total(cost**2 * slope)
    held = np.where(pull > 0, pull, 1)
    share = total(cost * slope * h) / held
    # Where less is taken in part than rounding makes of the sum, the price may be anywhere.
    part_of_sum = total(np.where(part, cost * z, 0))
    inner = np.where(near | (part_of_sum <= 64 * adding * k), np.nan, 1)
    own = of.unit * (16 + 8 * e + np.abs(np.log2(np.where(z > 0, z, 1))))
    rough = np.abs(h) + np.abs(cost * share)
    # What entries are worth for their cost is a quotient of x, not of its distance from the threshold: each is off by
    # its own roundings, and the price by a mean of them.
    reach = np.abs(x) + np.abs(x - low * cost)
    off = 4 * of.unit * (reach + cost * total(cost * slope * reach) / held) / lam
    bent = np.where(part, np.abs(e - 1) * off / np.where(part, t, 1), 0)
    wanted = {
        "value": z,
        "x": inner * slope * (h - cost * share),
        "k": inner * np.where(pull > 0, share, np.nan),
        "lam": -inner * total(slope * t * (h - cost * share)),
    }
    slack = {
        "value": np.where(edge, 0, own * z + lam * slope * off + near * 4 * adding * everything / cost),
        "x": (own + adding + bent) * slope * rough,
        "k": adding * total(cost * slope * np.abs(h)) / held,
        "lam": total((own + adding + bent) * slope * np.abs(t) * rough),
    }
    scale = sizes_of(wanted) | {
        "x": (slope * rough).max(axis=1, keepdims=True) + slope.max(axis=1, keepdims=True) * np.abs(h).max(),
        "lam": total(slope * np.abs(t) * rough),
    }
    return Answer(
        wanted,
        slack,
        reach,
        scale,
        np.where(edge, 0, (16 + x.shape[1] / 4) * k + 2 * total(cost * slope * lam)),
    )
