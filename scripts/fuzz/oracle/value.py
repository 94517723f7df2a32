"""Values of the relaxed top-k problems, and the Fenchel-Young losses made of them.

Where ``u`` and ``z`` solve the problem (``scripts.fuzz.oracle.equation``), its value is

    f(x) = sum_i z_i phi(u_i) + (1 - 1 / p) lam sum_i |y_i|^p,

where the first sum runs over entries selected fully, at ``u_i``, and over ``gamma`` for all that is left of ``k``. As a
function of ``gamma`` alone this has its minimum at the solution, so that an error in ``gamma`` counts by its square.
"""

import numpy as np

from scripts.fuzz.oracle import hard, operator
from scripts.fuzz.oracle.equation import Curve, unshifted
from scripts.fuzz.oracle.operator import Solved
from scripts.fuzz.oracle.reals import Reals, power, real
from scripts.fuzz.oracle.rounding import Precision
from scripts.fuzz.oracle.topk import Numbers, Truth, solve_masked
from scripts.fuzz.quantity import Quantity


def expect(of: Numbers, p: float, curve: Curve, precision: Precision, cotangent: np.ndarray) -> Truth:
    """The value of each row and its derivatives, weighted by ``cotangent`` of shape ``(rows, 1)``."""
    weight = real(cotangent)
    with np.errstate(all="ignore"):
        relaxed = _relaxed(of, solve_masked(of, p, curve, precision), p, weight)
        limit = _hard(of, curve, p, precision, weight)
    answers = [soft.where(of.lam == 0, exact) for soft, exact in zip(relaxed, limit, strict=True)]
    return Truth(answers, of.nan, np.zeros_like(of.nan))


def _total(values: Reals) -> Reals:
    return values.sum(axis=1, keepdims=True)


def full_points(of: Solved) -> Reals:
    """``u`` of the entries that are selected fully, 0 at the others."""
    points = np.zeros_like(of.root.s)
    whole = of.whole
    lam = np.broadcast_to(of.by.lam, points.shape)[whole]
    points[whole] = unshifted(of.root.s[whole], lam, of.by, of.curve)
    return points


def norm(y: Reals, p: float) -> Reals:
    """``sum(|y|^p)``."""
    return _total(power(np.abs(y), np.longdouble(p)))


def _relaxed(given: Numbers, of: Solved, p: float, weight: Reals) -> list[Quantity]:
    root, rounded, curve, lam = of.root, of.rounded, of.curve, of.by.lam
    unit, whole, y = rounded.unit, of.whole, of.y
    points = full_points(of)
    phi = np.where(whole, curve.value(points), 0.0)
    left = np.where(root.hard | root.pinned, 0.0, root.k - whole.sum(axis=1, keepdims=True))
    block = np.where(left == 0, 0.0, left * curve.value(root.gamma))
    spent = (1 - 1 / np.longdouble(p)) * lam * norm(y, p)
    value = _total(phi) + block + spent

    sizes = np.where(whole, np.abs(root.s) + lam if curve.linear else phi * (8 + 2 * of.full_error), 0.0)
    of_block = np.abs(root.gamma) if curve.name == "exp" else 1.0
    error = (rounded.adding + 4 * unit) * (_total(sizes) + np.abs(block) * (4 + of_block) + spent)
    own = unit * (rounded.own + of.full_error) * np.abs(y)
    error = error + p * lam * _total(power(np.abs(y), of.by.order) * own)
    error = error + rounded.total * rounded.level * curve.slope(root.gamma)

    sign = np.sign(given.x) if curve.even else np.ones_like(given.x)
    operated = operator.value(of, sign)
    in_x_error = np.abs(weight) * (operated.bound + unit * np.abs(operated.wanted))
    in_lam = -weight * norm(y, p) / p
    of_norm = _total(power(np.abs(y) + operated.bound, of.by.order) * operated.bound)
    in_lam_error = np.abs(weight) * of_norm + (rounded.adding + 8 * unit) * np.abs(in_lam)
    in_k, in_k_error = _in_k(of, weight)
    return [
        Quantity.of("value", value, error, scale=_total(sizes) + np.abs(block) + spent),
        Quantity.of("d/dx", weight * operated.wanted, in_x_error),
        Quantity.of("d/dk", in_k, in_k_error),
        Quantity.of("d/dlam", in_lam, in_lam_error),
    ]


def _in_k(of: Solved, weight: Reals) -> tuple[Reals, Reals]:
    """``phi(gamma)``; where there is an interval of thresholds, from the left, and from the right where ``k`` is 0."""
    root, rounded, curve = of.root, of.rounded, of.curve
    low = np.where(np.isfinite(root.low), root.low, 0.0)
    side = curve.value(np.where(root.k == 0, low, np.where(np.isfinite(root.high), root.high, 0.0)))
    at = np.where(root.pinned, 0.0, curve.value(root.gamma))
    one = np.where(root.hard, np.where(of.asked > root.k, 0.0, side), at)
    size = np.maximum(np.abs(root.gamma), np.abs(np.where(root.hard, low, 0.0)))
    slack = rounded.level + rounded.unit * (4 + of.full_error.max(axis=1, keepdims=True)) * (
        size + of.by.lam * curve.linear
    )
    error = np.abs(weight) * (slack * curve.slope(size) + 4 * rounded.unit * np.abs(one))
    return weight * one, error


def _hard(of: Numbers, curve: Curve, p: float, precision: Precision, weight: Reals) -> list[Quantity]:
    """At ``lam = 0`` the sum of the ``k`` largest ``phi``."""
    keys = np.abs(of.x) if curve.even else of.x
    s = np.where(of.present, keys, -np.inf)
    z = hard.chosen(s, of.k)
    size, available = np.abs(z * curve.value(keys)), of.present.sum(axis=1, keepdims=True)
    sign = np.sign(of.x) if curve.even else np.ones_like(of.x)
    slope = np.abs(sign) * z * curve.slope(keys)  # what bears no sign is 0, also where a kink has a slope there
    factor = precision.unit * ((np.abs(keys) if curve.name == "exp" else np.zeros_like(keys)) + 4)
    adding = precision.unit * (4 + 0.5 * available)
    untied = ~hard.tied(s, z)
    least = curve.value(np.where(z > 0, s, np.inf).min(axis=1, keepdims=True))
    most = np.where(z == 0, s, -np.inf).max(axis=1, keepdims=True)
    most = np.where(of.k >= available, 0.0, curve.value(most))
    in_k = np.where(of.k > available, 0.0, np.where(of.k == 0, most, least))
    in_k_error = np.abs(weight) * factor.max(axis=1, keepdims=True) * np.abs(in_k)
    in_lam = -weight * norm(slope, p) / p
    in_lam_error = (adding + 4 * factor.max(axis=1, keepdims=True)) * np.abs(in_lam)
    sum_error = adding * _total(size) + _total(factor * size)
    return [
        Quantity.of("value", _total(z * curve.value(keys)), sum_error, scale=_total(size)),
        Quantity.of("d/dx", weight * sign * slope, np.abs(weight) * factor * slope, untied),
        Quantity.of("d/dk", weight * in_k, in_k_error, np.isfinite(in_k)),
        Quantity.of("d/dlam", in_lam, in_lam_error, untied),
    ]
