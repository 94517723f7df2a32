"""Top-k masks, magnitudes and their like, with the conventions for absent and infinite entries and for ``lam = 0``."""

import dataclasses

import numpy as np

from tests.ops.oracle.equation import Curve, Root, Strength, solve, unshifted
from tests.ops.oracle.problem import Answer, Problem, sizes_of, total
from tests.ops.oracle.reals import Flags, Real, Reals, power
from tests.ops.oracle.rounding import UNITS


@dataclasses.dataclass(frozen=True)
class Solved:
    """Rows of a relaxed operator, solved.

    Attributes:
      s: what entries compete by, ``-inf`` where they take no part.
      sign: that the results bear.
      present: entries that take part and are finite.
      highest: infinite entries, which come first.
      left: ``k`` less these.
      root: the threshold, with 1 for a ``lam`` that is 0.
      u: of entries selected fully; 0 elsewhere.
      y: the operator without signs, not rescaled.
    """

    s: Reals
    sign: Reals
    present: Flags
    highest: Flags
    left: Reals
    by: Strength
    root: Root
    u: Reals
    y: Reals

    @property
    def partly(self) -> Flags:
        """Entries selected in part."""
        return (self.root.t > 0) & (self.root.t < 1) & ~self.root.hard

    @property
    def whole(self) -> Flags:
        """Entries selected fully."""
        return self.root.t >= 1


def solved(of: Problem, curve: Curve) -> Solved:
    """Solves the rows of a problem."""
    finite = of.where & np.isfinite(of.x)
    highest = of.where & (np.isinf(of.x) if curve.even else of.x == np.inf)
    x = np.where(finite, of.x, 0)
    keys = np.abs(x) if curve.even else x
    first = total(highest)
    left = np.maximum(of.k - first, 0)
    by = Strength(np.where(of.lam == 0, 1, of.lam), of.order, of.exponent)
    root = solve(keys, finite & (first <= of.k), left, by, curve)
    whole = root.t >= 1
    u = np.zeros_like(root.s)
    u[whole] = unshifted(root.s[whole], np.broadcast_to(by.lam, u.shape)[whole], by, curve)
    partly = (root.t > 0) & ~whole & ~root.hard
    y = np.where(whole, curve.slope(u), np.where(partly, root.z * curve.slope(root.gamma), 0))
    sign = np.sign(x) if curve.even else np.ones_like(x)
    return Solved(np.where(finite, keys, -np.inf), sign, finite, highest, left, by, root, u, y)


def loose(of: Problem, at: Solved) -> Reals:
    """Units by which the sum may be off: those of its terms, of adding them, and of positions, absolute ones."""
    root = at.root
    slopes = np.where(at.partly, at.by.exponent * root.z / np.where(at.partly, root.t, 1), 0)
    # An interval of thresholds as short as a rounding may close, and then the sum has terms.
    from_kink = np.minimum(np.abs(root.t), np.abs(root.t - 1)).min(axis=1, keepdims=True)
    sure = root.hard & (from_kink > UNITS * of.unit)
    return np.where(sure | (of.lam == 0), 0, _adding(at) * root.k + 2 * total(slopes))


def _adding(at: Solved) -> Reals:
    return 16 + total(at.present) / 4


def chosen(s: Reals, k: Reals) -> Reals:
    """How much the hard operators select: the ``k`` largest, the first among ties, ``-inf`` never."""
    order = np.argsort(-s, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(s.shape[1]), s.shape), axis=1)
    return np.where(s > -np.inf, np.clip(k - rank, 0, 1), 0)


def tied(s: Reals, z: Reals) -> Flags:
    """Rows in which one of equal entries is selected more than another."""
    least = np.where(z > 0, s, np.inf).min(axis=1, keepdims=True)
    return (least == np.where(z < 1, s, -np.inf).max(axis=1, keepdims=True)) & np.isfinite(least)


def topk(of: Problem, curve: Curve, debias: bool = False) -> Answer:
    """The operator of ``curve`` and its derivatives; ``debias`` gives back what the relaxation takes."""
    with np.errstate(all="ignore"):
        at = solved(of, curve)
        h = np.where(at.present, at.sign * of.cotangent, 0)
        choose, slack, scale = (
            {name: np.where(of.lam == 0, hard[name], soft[name]) for name in soft}
            for soft, hard in zip(_relaxed(of, at, curve, debias, h), _hard(of, at, curve, h), strict=True)
        )
        for name in ("value", "x"):
            choose[name] = np.where(at.sign == 0, 0, at.sign * choose[name])
        if curve.name == "half_square":
            _with_zeros(of, at, choose, slack, debias)
        if at.highest.any():
            _with_infinities(of, at, choose, slack, curve)
        # A share about to leave the normal numbers, below four times the least of them, may count as not selected.
        lost = at.partly & (at.root.z < 4 * of.tiny * (1 + 64 * of.exponent * of.unit)) & (not debias)
        other = {"x": np.where(lost, 0, choose["x"])}
    return Answer(choose, slack, reach(of, at), scale, loose(of, at), other)


def reach(of: Problem, at: Solved) -> Reals:
    """Distances from the threshold; comparisons alone, at ``lam = 0``, round nothing."""
    return np.where(np.isfinite(at.root.gap) & (of.lam > 0), np.abs(at.root.gap), 0)


def _relaxed(of: Problem, at: Solved, curve: Curve, debias: bool, h: Reals) -> tuple[dict[str, Reals], ...]:
    """Without signs.

    On the partly selected set, with ``rho_i = ((s_i - gamma) / lam) ** e`` and ``e = 1 / (p - 1)``,
    differentiating ``y_i = rho_i`` and ``sum(rho) = (k - count of the full) phi'(gamma)`` gives

        dy_i = D_i (ds_i - dgamma) - e rho_i / lam dlam,                          D_i = e rho_i / (s_i - gamma),
        dgamma = (sum(D ds) - sum(e rho / lam) dlam - phi'(gamma) dk) / sum(D + z phi''(gamma)),

    and a rescaled entry, ``y_i + s_i - gamma``, moves by ``ds_i - dgamma`` more.
    """
    root, lam, e, partly, whole = at.root, at.by.lam, at.by.exponent, at.partly, at.whole
    slope, curvature = curve.slope(root.gamma), curve.curvature(root.gamma)
    y = at.y
    if debias:
        y = np.where(whole, root.s, np.where(partly, root.gap + root.z * root.gamma, 0))
    rho = np.where(partly, root.z * slope, 0)
    steep = np.where(partly, e * slope / root.width * power(np.where(partly, root.t, 1), e - 1), 0)
    extra = np.where(partly & debias, 1, 0)
    pull = total(steep + np.where(partly, root.z, 0) * curvature)
    fixed = root.pinned | (pull == 0)
    share = np.where(fixed, 0, total((steep + extra) * h) / np.where(fixed, 1, pull))
    kept, lost = np.zeros_like(h), np.zeros_like(h)
    if debias:
        kept = np.where(whole, h, 0)
    elif not curve.linear:
        # dy = phi''(u) du and du (1 + W'(u)) = ds - W(u) dlam / lam; W' = (p - 1) W phi''(u) / y, and phi'' is 1, or y.
        some = np.where(whole, at.y, 1)
        width = lam * power(some, of.order)
        grows = some / ((some if curve.name == "half_square" else 1) + of.order * width)
        kept, lost = np.where(whole, grows * h, 0), np.where(whole, -grows * width / lam * h, 0)
    paid = e * rho / lam
    most = np.abs(h).max(axis=1, keepdims=True)
    side = np.where(root.hard, _side_in_k(of, at, curve, debias, h), slope * share)
    wanted = {
        "value": y,
        "x": steep * (h - share) + extra * h + kept,
        "k": side,
        "lam": total(lost - paid * (h - share)),
    }
    # Powers are wrong by units of their logarithm, and p by half a unit of a float64.
    digits = np.abs(np.log2(np.where(y > 0, y, 1)))
    own = of.unit * (8 + 2 * e + (1 + e * 2.0**-53 / of.unit) * digits)
    left = np.where(partly & debias, (1 - root.z) * root.gamma, 0)
    # Where all are selected fully or not at all, derivatives are taken a unit inwards of an interval of thresholds.
    inwards = 16 + 4 * e + np.where(slope > 0, 2 * root.width * curvature / (e * slope), 0)
    inwards = of.unit * (inwards + of.order * np.abs(np.log2(np.where(slope > 0, slope, 1))))
    wanted["k"] = np.where(root.hard & (inwards > 0.05), np.nan, wanted["k"])
    # Where less is selected in part than rounding makes of the sum, the threshold may be anywhere; or it underflows.
    part = np.where(partly, root.z, 0)
    unsteady = ~root.hard & (total(part) <= 8 * of.unit * _adding(at) * root.k)
    if curve.name == "half_square":
        unsteady = unsteady | ((root.gamma <= 8 * of.tiny) & (root.k > 0))
    for name in ("x", "k", "lam"):
        wanted[name] = np.where(unsteady, np.nan, wanted[name])
    # The threshold moves y_i = z_i phi'(gamma) through both of its factors, and most of that cancels.
    # A share is a mean, of weights that are rounded, and added up.
    weights = np.where(partly, steep + extra, 0)
    of_share = total(own * (part * curvature + weights) * np.abs(h - share))
    of_share = (of_share + of.unit * _adding(at) * total(weights * np.abs(h))) / np.where(fixed, 1, pull)
    of_k = np.where(root.hard, np.abs(_side_in_k(of, at, curve, debias, np.ones_like(h))) * most, np.abs(slope * share))
    size_of_k = slope * np.where(fixed, most, total((steep + extra) * np.abs(h)) / np.where(fixed, 1, pull))
    steepest = np.where(unsteady, e * slope / root.width, np.maximum(steep + extra, np.abs(kept)))
    slack = {
        "value": own * np.abs(y) + 4 * of.unit * left,
        "x": 2 * own * (steep * (np.abs(h) + np.abs(share)) + np.abs(extra * h) + np.abs(kept)) + steep * of_share,
        "k": inwards * np.nan_to_num(of_k) + slope * of_share + of.unit * _adding(at) * size_of_k,
        "lam": total(2 * own * (np.abs(lost) + paid * (np.abs(h) + np.abs(share))) + paid * of_share)
        + np.where(root.hard & (root.k > 0), inwards * most * e * slope / lam, 0),
    }
    scale = {
        "value": y.max(axis=1, keepdims=True),
        "x": steepest.max(axis=1, keepdims=True) * most,
        "k": np.maximum(size_of_k, np.nan_to_num(of_k)),
        "lam": total(np.abs(lost) + paid * (np.abs(h) + np.abs(share))),
    }
    return wanted, slack, scale


def _side_in_k(of: Problem, at: Solved, curve: Curve, debias: bool, h: Reals) -> Reals:
    """The derivative in ``k`` of rows with no entry selected in part: from the left; from the right where ``k`` is 0.

    A smaller ``k`` takes from the least entries selected, a larger gives to the greatest that are not, in equal shares
    among ties. 0 where ``k`` is more than there is; NaN where the derivative is infinite.
    """
    root, e = at.root, at.by.exponent

    def mean(values: Reals, among: Flags) -> Reals:
        return total(np.where(among, values, 0)) / np.maximum(total(among), 1)

    least = np.where(at.whole, root.s, np.inf).min(axis=1, keepdims=True)
    steep = e * curve.slope(root.high) / at.by.width(curve, root.high)  # D at position 1
    extra = 1.0 if debias else 0.0
    left = mean(h, root.s == least) * curve.slope(root.high) * (steep + extra) / (steep + curve.curvature(root.high))
    if curve.linear:
        left = mean(h, root.s == least)
    low = np.where(np.isfinite(root.low), root.low, 0)
    right = mean(h, (root.s == root.low) & ~at.whole) * curve.slope(low)
    if debias:
        right = np.where(low > 0, right * (1 + at.by.lam) if of.order == 1 else np.nan, 0)
    side = np.where(at.left > root.k, 0, np.where(root.k == 0, right, left))
    return np.where(np.isfinite(side), side, np.nan)


def _hard(of: Problem, at: Solved, curve: Curve, h: Reals) -> tuple[dict[str, Reals], ...]:
    """At ``lam = 0``. ``k`` moves the last entry selected, of ties by index; the first that would be where it is 0."""
    z = chosen(at.s, at.left)
    keys = np.where(at.present, at.s, 0)
    slope = curve.slope(keys)
    grows = np.where(tied(at.s, z), np.nan, z * curve.curvature(keys) * h)
    up = np.where(at.left == 0, 1, np.ceil(at.left))
    last = np.where(chosen(at.s, up) > chosen(at.s, up - 1), slope * h, 0)
    in_k = np.where(at.left > total(at.present), 0, total(last))
    # Masks and whole magnitudes are exact; an exponential magnifies the rounding of its argument.
    digits = of.unit * (np.abs(keys) + 8 if curve.name == "exp" else np.where(z % 1 == 0, 0, 1))
    wanted = {"value": slope * z, "x": grows, "k": in_k, "lam": np.full_like(in_k, np.nan)}
    slack = {
        "value": digits * slope,
        "x": (digits + 8 * of.unit) * np.abs(np.nan_to_num(grows)),
        "k": (digits + 8 * of.unit).max(axis=1, keepdims=True) * np.abs(in_k),
        "lam": np.zeros_like(in_k),
    }
    of_lam = total(np.abs(z * curve.curvature(keys) * power(np.abs(slope), of.order) * h))
    return wanted, slack, sizes_of(wanted) | {"lam": of_lam}


def _with_zeros(of: Problem, at: Solved, wanted: dict[str, Reals], slack: dict[str, Reals], debias: bool) -> None:
    """``half_square`` selects no entry that is 0, but where there is room for such entries they move as if selected.

    Where there is room for a part of one, there is no one answer.
    """
    number, zero = total(at.present), at.present & (at.s == 0)
    others = number - total(zero)
    share = share_at_zero(of.k, others, number, of.lam, of.order)
    moves = of.cotangent * (1 if debias else 1 / (1 + of.lam) if of.order == 1 else of.lam == 0)
    room = zero & (of.k > others)
    wanted["x"] = np.where(room, moves * share, wanted["x"])
    slack["x"] = np.where(room, 8 * of.unit * np.abs(moves), slack["x"])


def share_at_zero(k: Reals, others: Reals, number: Reals, lam: Reals, order: Real) -> Reals:
    """How magnitudes that are 0 move, as a share of how selected ones do; NaN where there is doubt about it."""
    sure = (k >= number) | ((k - others >= 1) & (lam > 0)) | (k <= others)
    return np.where(sure, np.where((k >= number) | ((k > others) & (lam > 0)), 1.0, 0.0), np.nan)


def _with_infinities(of: Problem, at: Solved, wanted: dict[str, Reals], slack: dict[str, Reals], curve: Curve) -> None:
    """Infinite entries come before all others; too many share, or are chosen by index where ``lam`` is 0."""
    first = total(at.highest)
    known = (first == 0) | ((first < of.k) & (not curve.even))
    for name in ("x", "k", "lam"):
        wanted[name] = np.where(known & ((first == 0) | (name != "k")), wanted[name], np.nan)
    if curve.even:
        wanted["value"] = np.where(first == 0, wanted["value"], np.nan)
        return
    among = chosen(np.where(at.highest, 1, -np.inf), of.k)
    share = np.where(of.lam == 0, among, np.minimum(of.k / np.maximum(first, 1), 1))
    unit = of.unit * (8 + 8 * of.exponent + first)
    wanted["value"] = np.where(at.highest, share, wanted["value"])
    slack["value"] = np.where(
        at.highest, unit * (share % 1 != 0), slack["value"] + unit * (first > 0) * (slack["value"] > 0)
    )
