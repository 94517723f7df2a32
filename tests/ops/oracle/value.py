"""Values of the relaxed top-k problems, and the Fenchel-Young losses made of them.

Where ``u`` and ``z`` solve the problem (``tests.ops.oracle.equation``), its value is

    f(x) = sum_i z_i phi(u_i) + (1 - 1 / p) lam sum_i |y_i|^p,

where the first sum runs over entries selected fully, at ``u_i``, and over ``gamma`` for all that is left of ``k``. With
``a_i = x_i - gamma`` the loss ``f(x) + R(t) - <x, t>`` of a mask is

    sum_i T_i + (k - sum(t)) gamma,       T_i = max over 0 <= y <= 1 of (a_i y - lam y^p / p) - a_i t_i + lam t_i^p / p,

with every ``T_i >= 0``: ``lam`` times the Bregman divergence of ``|.|^p / p`` from ``t`` to ``y``, plus
``(1 - t)(a - lam)`` where ``y = 1`` and ``-t a`` where ``y = 0``.
"""

import dataclasses

import numpy as np

from tests.ops.oracle.equation import Curve
from tests.ops.oracle.problem import Answer, Problem, sizes_of, total
from tests.ops.oracle.reals import Flags, Reals, power
from tests.ops.oracle.topk import Solved, chosen, loose, reach, solved, tied


def value(of: Problem, curve: Curve) -> Answer:
    """The value of each row and its derivatives; ``cotangent`` has shape ``(rows, 1)``."""
    with np.errstate(all="ignore"):
        at = solved(of, curve)
        soft, hard = _relaxed(of, at, curve), _hard(of, at, curve)
        wanted, slack, scale = (
            {name: np.where(of.lam == 0, limit[name], relaxed[name]) for name in relaxed}
            for relaxed, limit in zip(soft, hard, strict=True)
        )
    return Answer(wanted, slack, reach(of, at), scale, loose(of, at))


def _norm(y: Reals, of: Problem) -> Reals:
    return total(power(np.abs(y), of.order + 1)) / (of.order + 1)


def _relaxed(of: Problem, at: Solved, curve: Curve) -> tuple[dict[str, Reals], ...]:
    root, y, weight, lam = at.root, at.y, of.cotangent, at.by.lam
    phi = np.where(at.whole, curve.value(at.u), 0)
    left = np.where(root.hard | root.pinned, 0, root.k - total(at.whole))
    block = np.where(left == 0, 0, left * curve.value(root.gamma))
    norm = _norm(y, of)
    spent = of.order * lam * norm

    low = np.where(np.isfinite(root.low), root.low, 0)
    side = np.where(root.k == 0, low, np.where(np.isfinite(root.high), root.high, 0))
    in_k = np.where(root.pinned, 0, curve.value(np.where(root.hard, side, root.gamma)))
    in_k = np.where((root.hard & (of.k > root.k)) | (total(at.present) == 0), 0, in_k)
    size = np.maximum(np.abs(root.gamma), np.abs(np.where(root.hard, low, 0)))
    e = of.exponent
    adding = of.unit * (8 + 0.5 * total(at.present))
    digits = np.abs(np.log2(np.where(y > 0, y, 1)))
    own = of.unit * (8 + 4 * e + (1 + e * 2.0**-53 / of.unit) * digits)
    sizes = np.where(at.whole, np.abs(root.s) + lam if curve.linear else phi, 0)
    wide = np.abs(root.gamma) + 4 if curve.name == "exp" else 4
    wanted = {"value": total(phi) + block + spent, "x": weight * at.sign * y, "k": weight * in_k, "lam": -weight * norm}
    slack = {
        "value": adding * (total(sizes) + wide * np.abs(block) + spent)
        + total(own * (np.abs(phi) + lam * power(y, of.order + 1)))
        # A share that underflows is lost with its entry.
        + 4 * of.tiny * total(np.where(at.partly, curve.slope(np.abs(at.s)) * np.abs(at.s), 0)),
        "x": np.abs(weight) * own * y,
        "k": np.abs(weight) * of.unit * (16 + 4 * e) * (curve.slope(size) * (size + lam * curve.linear) + np.abs(in_k)),
        "lam": np.abs(weight) * (adding * norm + total(own * power(y, of.order + 1))),
    }
    return wanted, slack, sizes_of(wanted) | {"value": total(sizes) + np.abs(block) + spent}


def _hard(of: Problem, at: Solved, curve: Curve) -> tuple[dict[str, Reals], ...]:
    """At ``lam = 0`` the sum of the ``k`` largest ``phi``."""
    z, weight = chosen(at.s, of.k), of.cotangent
    keys = np.where(at.present, at.s, 0)
    slope = np.abs(at.sign) * z * curve.slope(keys)  # 0 where there is no sign, also where a kink has a slope there
    untied = np.where(tied(at.s, z), np.nan, 1)
    available = total(at.present)
    least = curve.value(np.where(z > 0, at.s, np.inf).min(axis=1, keepdims=True))
    most = np.where(of.k >= available, 0, curve.value(np.where(z == 0, at.s, -np.inf).max(axis=1, keepdims=True)))
    in_k = np.where(of.k > available, 0, np.where(of.k == 0, most, least))
    factor = of.unit * ((np.abs(keys) if curve.name == "exp" else 0 * keys) + 4)
    adding = of.unit * (4 + 0.5 * available)
    size = np.abs(z * curve.value(keys))
    norm = _norm(slope, of)
    wanted = {
        "value": total(z * curve.value(keys)),
        "x": untied * weight * at.sign * slope,
        "k": np.where(np.isfinite(in_k), weight * in_k, np.nan),
        "lam": -untied * weight * norm,
    }
    most_of = factor.max(axis=1, keepdims=True)
    slack = {
        "value": adding * total(size) + total(factor * size),
        "x": np.abs(weight) * factor * slope,
        "k": np.abs(weight) * most_of * np.abs(np.nan_to_num(in_k)),
        "lam": np.abs(weight) * (adding + 4 * most_of) * norm,
    }
    return wanted, slack, sizes_of(wanted) | {"value": total(size)}


def loss(of: Problem, smooth: bool) -> Answer:
    """The top-k loss of targets ``extra``, as they are or moved into the polytope, and its derivatives."""
    with np.errstate(all="ignore"):
        return _loss(of, smooth)


def _into_polytope(t: Reals, present: Flags, k: Reals) -> tuple[Reals, Reals]:
    """Targets that sum to ``k``, in [0, 1], and how they grow with ``k``; NaN at the kink."""
    positives = total(t)
    rest = np.where(present, 1 - t, 0)
    goes = np.where(positives <= k, rest / np.maximum(total(rest), 1e-300), t / np.where(positives > 0, positives, 1))
    near = np.abs(positives - k) <= 1e-5 * (positives + k)
    return np.where(positives <= k, t + (k - positives) * goes, k * goes), np.where(near, np.nan, goes)


def _loss(of: Problem, smooth: bool) -> Answer:
    available = total(of.where & np.isfinite(of.x))
    at = solved(dataclasses.replace(of, k=np.minimum(of.k, available)), Curve("identity"))
    root, present, lam, order, weight = at.root, at.present, of.lam, of.order, of.cotangent
    vanishing = lam == 0
    t = np.where(present, of.extra, 0)
    grows = 0 * t
    if smooth:
        t, grows = _into_polytope(t, present, root.k)
    z = chosen(at.s, root.k)
    least = np.where(z > 0, at.s, np.inf).min(axis=1, keepdims=True)
    top = np.where(present.any(axis=1, keepdims=True), at.s.max(axis=1, keepdims=True), 0)
    threshold = np.where(vanishing, np.where(np.isfinite(least), least, top), root.gamma)
    gap = np.where(present, np.where(vanishing, at.s - threshold, root.gap), 0)
    y = np.where(present, np.where(vanishing, z, root.z), 0)

    adding = of.unit * (8 + 0.5 * total(present))
    digits = np.abs(np.log2(np.where(y > 0, y, 1)))
    own = of.unit * (8 + 4 * of.exponent + (1 + of.exponent * 2.0**-53 / of.unit) * digits)
    of_t = (4 * of.unit * t + adding * np.nan_to_num(grows) * (root.k + total(t))) * smooth
    divergence = lam * (
        power(t, order + 1) / (order + 1) + power(y, order + 1) * order / (order + 1) - t * power(y, order)
    )
    missing, misplaced = (1 - t) * np.maximum(gap - lam, 0), t * np.maximum(-gap, 0)
    terms = total(np.where(present, np.maximum(divergence, 0) + missing + misplaced, 0))
    made_of = lam * power(y, order) * np.abs(t - y) + misplaced
    made_of = made_of + np.where(gap > lam * (1 - 8 * of.unit), (1 - t) * (gap + lam), 0)
    # A divergence from roundings alone: its second derivative, lam (p - 1) y^(p - 2), over the width of the rounding.
    ragged = own * y + of_t
    bending = np.where(y > 0, order * ragged**2 / power(np.where(y > 0, np.maximum(y, t), 1), 1 - order), np.inf)
    error = adding * terms + total(np.where(present, own * made_of, 0))
    error = error + lam * total(np.minimum(power(ragged, order + 1), bending))
    norms = _norm(t, of) + _norm(y, of)
    error = error + 8 * np.finfo(np.longdouble).eps * norms * lam
    surplus = root.k - total(t)
    result = terms
    if smooth:
        error = error + total(of_t * np.abs(lam * power(t, order) - gap))
    else:
        base = np.where(present.any(axis=1, keepdims=True), threshold, 0)
        result = terms + surplus * base
        error = error + adding * (terms + (np.abs(surplus) + total(t)) * np.abs(base) + lam * _norm(t, of))

    sides, of_k = _loss_in_k(of, at, t, grows, smooth, available)
    left, right = (np.where(vanishing, np.nan, weight * side) for side in sides)
    untied = np.where(vanishing & tied(at.s, z), np.nan, 1)
    soft = np.where(vanishing, np.nan, 1)
    wanted = {
        "value": result,
        "x": np.where(present, untied * weight * (y - t), 0),
        "k": np.where(np.isnan(left), right, left),
        "lam": soft * weight * (_norm(t, of) - _norm(y, of)),
    }
    # A mask sums to k within a rounding of 1, however small its entries are.
    powers = total((own * y + of.unit) * power(y, order) + of_t * power(t + of_t, order))
    slack = {
        "value": error,
        "x": np.abs(weight) * (own * y + of_t + of.unit * t),
        "k": np.abs(weight) * adding * np.nan_to_num(of_k),
        "lam": np.abs(weight) * (powers + (adding + 8 * of.unit) * norms),
    }
    other = {"k": np.where(np.isnan(right), left, right)}
    return Answer(wanted, slack, reach(of, at), sizes_of(wanted) | {"k": np.abs(weight) * of_k}, loose(of, at), other)


def _loss_in_k(
    of: Problem, at: Solved, t: Reals, grows: Reals, smooth: bool, available: Reals
) -> tuple[tuple[Reals, Reals], Reals]:
    """``gamma``, and where targets move with ``k`` what they add; from the left and from the right, and their size.

    The derivative of ``T_i`` in ``t_i`` is ``lam t_i^(p - 1) - a_i``, and the targets' derivatives sum to 1.
    """
    root, lam = at.root, at.by.lam
    sides, sizes = [], []
    for end in (root.high, root.low):
        gamma = np.where(root.hard, np.where(np.isfinite(end), end, np.nan), root.gamma)
        if smooth:
            marginal = np.where(at.present, lam * power(t, of.order), 0)
            gap = np.where(at.present, root.gap + (root.gamma - gamma), 0)
            sides.append(total((marginal - gap) * grows))
            sizes.append(total((np.abs(marginal) + np.abs(gap)) * grows) + lam)
        else:
            sides.append(gamma)
            sizes.append(np.abs(gamma) + lam)
    left, right = sides
    # At most as many are selected as take part; n itself is the end of the range of k.
    right = np.where(of.k < available, right, np.where(available < of.x.shape[1], 0, np.nan))
    left = np.where(of.k == 0, np.nan, np.where(of.k > available, 0, left))
    return (left, right), np.where(available > 0, np.fmax(*sizes), 0)
