"""Answers for groups that are kept or pruned together, and for runs that keep some of their own.

What competes are sizes: means of scores ``s_g = sum(x_i) / m``, or root mean squares. The entries are drawn so that
floating point has these exactly (``scripts.fuzz.entries``), and so the answer for the sizes is that for single entries
(``scripts.fuzz.oracle.topk``), with the bounds that belong to it. A mask is then ``y_i = z_g``; magnitudes are
``y_i = x_i w_g / s_g``, of which

    dy_i = w_g / s_g dx_i + x_i / s_g (dw_g - w_g / s_g ds_g),        ds_g = sum_i x_i dx_i / (m s_g),

and where a group is all 0, it moves as one that is kept if all are, and else not at all.
"""

import dataclasses

import numpy as np

from scripts.fuzz.oracle import hard, topk
from scripts.fuzz.oracle.equation import Curve
from scripts.fuzz.oracle.reals import Flags, Real, Reals, real
from scripts.fuzz.oracle.rounding import Precision
from scripts.fuzz.oracle.topk import Truth
from scripts.fuzz.quantity import Quantity


@dataclasses.dataclass(frozen=True)
class Grouped:
    """Rows of entries in groups.

    Attributes:
      x: entries, shape ``(rows, n)``.
      k: shape ``(rows,)``.
      lam: likewise.
      cotangent: of the shape of ``x``.
      members: the number of the group of each entry, shape ``(n,)``.
    """

    x: np.ndarray
    k: np.ndarray
    lam: np.ndarray
    cotangent: np.ndarray
    members: np.ndarray

    @property
    def count(self) -> Reals:
        """How many entries the group of each has."""
        return np.bincount(self.members)[self.members].astype(Real)

    def total(self, values: Reals) -> Reals:
        """Of each group, shape ``(rows, groups)``."""
        return values @ (self.members[:, None] == np.arange(self.members.max() + 1)).astype(Real)

    def sizes(self, even: bool) -> Reals:
        """What competes."""
        x, count = real(self.x), np.bincount(self.members)
        return np.sqrt(self.total(x * x) / count) if even else self.total(x) / count


def expect(of: Grouped, p: float, curve: Curve, precision: Precision, debias: bool, whole: bool) -> Truth:
    """The answers for groups that are kept whole; ``whole`` says that the operator is a hard one."""
    if not curve.even:
        return _mask(of, p, curve, precision)
    return _kept(of, precision) if whole else _scaled(of, p, curve, precision, debias)


def _of_sizes(
    of: Grouped, p: float, curve: Curve, precision: Precision, cotangent: Reals, debias: bool = False
) -> tuple[Truth, dict[str, Quantity]]:
    sizes = of.sizes(curve.even)
    found = topk.expect(
        topk.numbers(sizes, np.full(sizes.shape, True), of.k, of.lam, curve.even),
        p,
        curve,
        precision,
        cotangent,
        debias,
    )
    return found, {quantity.name: quantity for quantity in found.quantities}


def _mask(of: Grouped, p: float, curve: Curve, precision: Precision) -> Truth:
    h, groups, count = real(of.cotangent), of.members, of.count
    truth, found = _of_sizes(of, p, curve, precision, of.total(h))
    _, largest = _of_sizes(of, p, curve, precision, of.total(np.abs(h)))
    adding = precision.unit * (4 + 0.5 * count.max())
    lost = {name: adding * largest[name].scale for name in found}
    value, in_x = found["value"], found["d/dx"]
    wanted = in_x.wanted[:, groups] / count
    bound = (in_x.bound[:, groups] + lost["d/dx"]) / count + 2 * precision.unit * np.abs(wanted)
    return Truth(
        [
            Quantity.of("value", value.wanted[:, groups], value.bound[:, groups]),
            Quantity.of("d/dx", wanted, bound, in_x.judged, None, largest["d/dx"].scale),
            *(_loosened(found[name], lost[name]) for name in ("d/dk", "d/dlam")),
        ],
        truth.nan,
        truth.free,
    )


def _loosened(quantity: Quantity, by: Reals) -> Quantity:
    return dataclasses.replace(quantity, bound=quantity.bound + by)


def _kept(of: Grouped, precision: Precision) -> Truth:
    x, h, groups = real(of.x), real(of.cotangent), of.members
    sizes = of.sizes(even=True)
    z = hard.chosen(sizes, real(of.k)[:, None])
    chosen, nobody = z[:, groups], np.zeros((len(x), 1), bool)
    untied, exact = ~hard.tied(sizes, z), np.zeros_like(x)
    return Truth(
        [Quantity.of("value", x * chosen, exact), Quantity.of("d/dx", h * chosen, exact, untied)], nobody, nobody
    )


def _scaled(of: Grouped, p: float, curve: Curve, precision: Precision, debias: bool) -> Truth:
    x, h, groups, count, unit = real(of.x), real(of.cotangent), of.members, of.count, precision.unit
    s = of.sizes(even=True)
    some = s > 0
    size = np.where(some, s, 1)
    along = x / size[:, groups]
    pulls, strengths = of.total(h * along), of.total(np.abs(h * along))
    truth, found = _of_sizes(of, p, curve, precision, pulls, debias)
    _, largest = _of_sizes(of, p, curve, precision, strengths, debias)
    adding = unit * (8 + 0.5 * count.max())
    lost = {name: adding * largest[name].scale for name in found}

    value, in_s = found["value"], found["d/dx"]
    at_zero, doubt = _at_zero(of, some.sum(axis=1, keepdims=True), p, debias)
    factor = np.where(some, value.wanted / size, at_zero)
    of_factor = np.where(some, value.bound / size, doubt) + 4 * unit * np.abs(factor)
    wanted = x * factor[:, groups]
    bound = np.abs(along) * value.bound[:, groups] + 6 * unit * np.abs(wanted)

    turned = np.where(some, in_s.wanted - pulls * factor, 0)
    of_turned = in_s.bound + lost["d/dx"] + np.abs(pulls) * of_factor + adding * strengths * np.abs(factor)
    slope = h * factor[:, groups] + along * turned[:, groups] / count
    made_of = np.abs(h * factor[:, groups]) + np.abs(along) * (np.abs(in_s.wanted) + np.abs(pulls * factor))[:, groups]
    of_slope = np.abs(h) * of_factor[:, groups] + np.abs(along) * of_turned[:, groups] / count + 8 * unit * made_of
    scale = largest["d/dx"].scale + (np.abs(h).max(axis=1) * np.abs(factor).max(axis=1))[:, None]
    return Truth(
        [
            Quantity.of("value", wanted, bound),
            Quantity.of("d/dx", slope, of_slope, in_s.judged, None, scale),
            *(_loosened(found[name], lost[name]) for name in ("d/dk", "d/dlam")),
        ],
        truth.nan,
        truth.free,
    )


def _at_zero(of: Grouped, others: Reals, p: float, debias: bool) -> tuple[Reals, Reals]:
    """By how much a group of zeros moves, beside so many others, and how far that is in doubt."""
    lam = real(of.lam)[:, None]
    kept = np.ones_like(lam) if debias else np.where(lam == 0, 1, 1 / (1 + lam) if p == 2 else 0)
    share, sure = topk.share_at_zero(real(of.k)[:, None], others, np.full_like(others, of.members.max() + 1), lam, p)
    return kept * share, np.where(sure, 0.0, kept)


def expect_runs(of: Grouped, p: float, curve: Curve, precision: Precision, debias: bool) -> Truth:
    """The answers where the entries of each group compete among themselves; all groups are of one size."""
    places = np.argsort(of.members, kind="stable")  # of the entries, run by run
    rows, runs = len(of.x), int(of.members.max()) + 1

    def apart(values: np.ndarray) -> np.ndarray:
        return values[:, places].reshape(rows * runs, -1)

    each = np.full((rows * runs, len(places) // runs), True)
    given = topk.numbers(apart(of.x), each, np.repeat(of.k, runs), np.repeat(of.lam, runs), curve.even)
    found = topk.expect(given, p, curve, precision, apart(of.cotangent), debias)

    def together(values: Reals) -> Reals:
        back = np.empty((rows, len(places)), values.dtype)
        back[:, places] = values.reshape(rows, -1)
        return back

    def of_row(flags: Flags) -> Flags:
        return flags.reshape(rows, runs)

    answers = []
    for quantity in found.quantities:
        judged = np.all(of_row(quantity.judged), axis=1, keepdims=True)
        scale = of_row(quantity.scale).sum(axis=1, keepdims=True)
        if quantity.wanted.shape[1] > 1:
            wanted, bound, other = map(together, (quantity.wanted, quantity.bound, quantity.other))
        else:
            wanted, bound, other = (
                of_row(part).sum(axis=1, keepdims=True) for part in (quantity.wanted, quantity.bound, quantity.other)
            )
            bound = bound + precision.unit * (4 + 0.5 * runs) * scale
        answers.append(Quantity(quantity.name, wanted, bound, judged, other, scale))
    return Truth(answers, *(np.any(of_row(flags), axis=1, keepdims=True) for flags in (found.nan, found.free)))
