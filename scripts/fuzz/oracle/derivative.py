"""Derivatives of the relaxed operators, from differentiating the scalar equation at its solution."""

import numpy as np

from scripts.fuzz.oracle.equation import excess
from scripts.fuzz.oracle.operator import Solved
from scripts.fuzz.oracle.reals import Flags, Real, Reals, power
from scripts.fuzz.quantity import Quantity


def gradient(of: Solved, sign: Reals, cotangent: Reals) -> list[Quantity]:
    """The derivatives in ``x``, ``k`` and ``lam`` of the sum of the operator weighted by ``cotangent``.

    On the partly selected set, with ``rho_i = ((s_i - gamma) / lam) ** e`` and ``e = 1 / (p - 1)``, differentiating
    ``y_i = rho_i`` and ``sum(rho) = (k - count of the full) phi'(gamma)`` gives

        dy_i = D_i (ds_i - dgamma) - e rho_i / lam dlam,                          D_i = e rho_i / (s_i - gamma),
        dgamma = (sum(D ds) - sum(e rho / lam) dlam - phi'(gamma) dk) / sum(D + z phi''(gamma)),

    and a rescaled entry, ``y_i + s_i - gamma``, moves by ``ds_i - dgamma`` more. Errors let off follow from those of
    the positions. No answer is given where an entry is at a kink within rounding.
    """
    with np.errstate(all="ignore"):
        return _gradient(of, sign, sign * cotangent)


def _gradient(of: Solved, sign: Reals, h: Reals) -> list[Quantity]:
    root, rounded, by = of.root, of.rounded, of.by
    unit, lam, e, partly = rounded.unit, by.lam, by.exponent, of.partly

    def total(values: Reals) -> Reals:
        return values.sum(axis=1, keepdims=True)

    def steepness(t: Reals) -> Reals:  # D at this position, 0 outside
        t = np.where((t > 0) & (t < 1), t, np.nan)
        return np.nan_to_num(e * of.slope / root.width * power(t, e - 1))

    h = np.where(np.isfinite(root.s), h, 0.0)
    most = np.abs(h).max(axis=1, keepdims=True)
    rho = np.where(partly, root.z * of.slope, 0.0)
    steep = np.where(partly, steepness(root.t), 0.0)
    more, less = (
        steepness(np.minimum(root.t + rounded.t, np.nextafter(Real(1), Real(0)))),
        steepness(root.t - rounded.t),
    )
    steep_error = np.maximum(np.abs(more - steep), np.abs(steep - less))
    steep_error = np.where(partly | of.near(0.0), steep_error + unit * (rounded.own + 4) * steep, 0.0)
    # Where z underflows, or what D is made of; and where nothing is selected the threshold may be half a unit too low.
    unseen = rounded.tiny ** (1.0 if by.order == 1 else float(1 - 1 / e)) * e * of.slope / root.width
    if by.order < 1:
        unseen = unseen + np.where(root.k == 0, steepness(np.full_like(root.k, 0.5 * unit)), 0.0)
    unseen = np.where(np.isfinite(root.s), unseen, 0.0)
    unseen = unseen + np.where((root.t > 0) & (root.t < 8 * rounded.tiny), steep, 0.0)  # a position that underflows
    steep_error = steep_error + unseen
    rho_error = steep * rounded.gamma + unit * rounded.own * rho
    rho_error = np.where(np.isfinite(root.s), rho_error + rounded.tiny * (1 + of.slope), 0.0)

    extra = np.where(partly, 1.0, 0.0) if of.debias else np.zeros_like(h)
    curvature = of.curve.curvature(root.gamma)
    pull = total(steep + np.where(partly, root.z, 0.0) * curvature)
    fixed = root.pinned | (pull == 0)
    share = np.where(fixed, 0.0, total((steep + extra) * h) / np.where(fixed, 1.0, pull))
    error_of_pull = np.where(partly, rounded.own * root.z * unit, 0.0) * curvature + rounded.adding * (
        steep + root.z * curvature
    )
    # The threshold moves y_i = z_i phi'(gamma) through both of its factors, and most of that cancels.
    cancelled = unit * rounded.own * np.where(partly, root.z, 0.0) * curvature
    share_error = total(
        (steep_error + cancelled) * np.abs(h - share)
        + rounded.adding * (steep + extra) * np.abs(h)
        + error_of_pull * np.abs(share)
    )
    share_error = np.where(fixed, 0.0, share_error / np.where(fixed, 1.0, pull))

    kept, kept_error, lost, lost_error = _of_full(of, h)
    in_x = steep * (h - share) + extra * h + kept
    in_x_error = (
        steep_error * np.abs(h - share)
        + steep * share_error
        + 4 * unit * (steep * (np.abs(h) + np.abs(share)) + extra * np.abs(h))
        + kept_error
        + unseen * most
    )
    by_strength = e * rho / lam
    in_lam = total(lost - by_strength * (h - share))
    in_lam_error = total(
        lost_error
        + (e * rho_error / lam) * np.abs(h - share)
        + by_strength * share_error
        + (rounded.adding + 4 * unit) * (by_strength * (np.abs(h) + np.abs(share)) + np.abs(lost))
    )
    in_k = of.slope * share
    in_k_error = of.slope * share_error + (curvature * rounded.gamma + 8 * unit * of.slope) * np.abs(share)

    bends_at_0 = by.order == 1 or of.debias
    kink = (of.near(1.0) | (of.near(0.0) & bends_at_0)).any(axis=1, keepdims=True)
    if of.curve.name == "abs":  # gamma is about to come to rest at 0, or about to leave
        kink = kink | (~root.hard & (np.abs(excess(root.s, lam, root.k, by)) <= rounded.total))
    judged = ~kink & rounded.steady
    if of.curve.name == "half_square":  # a threshold that is no normal number
        judged = judged & ((root.gamma > 8 * rounded.tiny) | (root.k == 0))
    one = np.where(root.hard, _side_in_k(of, h), in_k)
    # Taken a unit of t away from the end of the interval, by a width that is a power.
    slope = np.where(of.slope > 0, of.slope, 1.0)
    inwards = 16 + 4 * e + 2 * root.width * curvature / (e * slope) + by.order * np.abs(np.log2(slope))
    in_k_error = np.where(
        root.hard, np.fmax(in_k_error, inwards * unit * most * _side_in_k(of, np.ones_like(h))), in_k_error
    )
    in_lam_error = in_lam_error + np.where(root.hard & (root.k > 0), inwards * unit * most * e * of.slope / lam, 0.0)
    defined = np.isfinite(one) & ~(root.hard & (inwards * unit > 0.05))
    steepest = np.maximum(steep + extra, np.abs(kept)).max(axis=1, keepdims=True)
    all_of_k = np.where(fixed, most, total((steep + extra) * np.abs(h)) / np.where(fixed, 1.0, pull))
    all_of_lam = total(by_strength * (np.abs(h) + np.abs(share)) + np.abs(lost))
    return [
        Quantity.of("d/dx", np.where(sign == 0, 0.0, sign * in_x), in_x_error, judged, None, steepest * most),
        Quantity.of("d/dk", one, in_k_error, judged & defined, None, of.slope * all_of_k),
        Quantity.of("d/dlam", in_lam, in_lam_error, judged, None, all_of_lam),
    ]


def _of_full(of: Solved, h: Reals) -> tuple[Reals, Reals, Reals, Reals]:
    """What entries selected fully add to the derivatives in ``x`` and in ``lam``, each with its error."""
    whole, by, y = of.whole, of.by, of.full
    none = np.zeros_like(h)
    if of.curve.linear:
        return none, none, none, none
    if of.debias:
        return np.where(whole, h, 0.0), none, none, none
    some = np.where(whole, y, 1.0)
    width = by.lam * power(some, by.order)
    # dy = phi''(u) du and du (1 + W'(u)) = ds - W(u) dlam / lam; W' = (p - 1) W phi''(u) / y, and phi'' is 1, or y.
    grows = some / ((some if of.curve.name == "half_square" else 1.0) + by.order * width)
    kept, lost = np.where(whole, grows * h, 0.0), np.where(whole, -grows * width / by.lam * h, 0.0)
    # Of a result that is lost in underflow, the derivatives are, too.
    relative = of.rounded.unit * (2 * of.full_error + 8) + np.where(y < 8 * of.rounded.tiny, 1.0, 0.0)
    return kept, relative * np.abs(kept), lost, relative * np.abs(lost)


def _side_in_k(of: Solved, h: Reals) -> Reals:
    """The derivative in ``k`` of rows with no entry selected in part: from the left; from the right where ``k`` is 0.

    A smaller ``k`` takes from the least entries selected, a larger gives to the greatest that are not, in equal shares
    among ties. 0 where ``k`` is more than there is; NaN where the derivative is infinite.
    """
    root, by, curve = of.root, of.by, of.curve

    def mean(values: Reals, chosen: Flags) -> Reals:
        count = chosen.sum(axis=1, keepdims=True)
        return np.where(chosen, values, 0.0).sum(axis=1, keepdims=True) / np.where(count > 0, count, 1)

    least = np.where(of.whole, root.s, np.inf).min(axis=1, keepdims=True)
    steep = by.exponent * curve.slope(root.high) / by.width(curve, root.high)  # D at position 1
    extra = 1.0 if of.debias else 0.0
    left = mean(h, root.s == least) * curve.slope(root.high) * (steep + extra) / (steep + curve.curvature(root.high))
    if curve.linear:
        left = mean(h, root.s == least)
    low = np.where(np.isfinite(root.low), root.low, 0.0)
    right = mean(h, (root.s == root.low) & ~of.whole) * curve.slope(low)
    if of.debias:
        right = np.where(low > 0, right * (1 + by.lam) if by.order == 1 else np.nan, 0.0)
    return np.where(of.asked > root.k, 0.0, np.where(root.k == 0, right, left))
