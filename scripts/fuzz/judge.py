"""Right or wrong: what an operator returned beside what the oracle says."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from scripts.fuzz.entries import BEYOND
from scripts.fuzz.oracle.reals import Flags, Real, Reals, real
from scripts.fuzz.oracle.topk import Truth
from scripts.fuzz.quantity import Quantity
from scripts.fuzz.setting import Rows, Setting


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is wrong with one quantity of one row.

    Attributes:
      quantity: its name.
      verdict: ``wrong``, ``NaN`` or ``infinite``; or that the oracle has no answer, a fault of its own.
      error: of the entry that is the furthest out.
      units: that in units of rounding of what the quantity is made of.
      ratio: that as a multiple of what is let off.
    """

    quantity: str
    verdict: str
    error: float
    units: float
    ratio: float

    def __str__(self) -> str:
        if self.verdict != "wrong":
            return f"{self.quantity} is {self.verdict}"
        size = f"{self.units:.2g} units, {self.ratio:.2g} times what rounding may do"
        return f"{self.quantity} off by {self.error:.2g}, {size}"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Of one quantity of all rows of a batch.

    Attributes:
      name: of the quantity.
      judged: how many rows have one right answer.
      faults: by row.
      units: the largest error of a row that is right, in units of rounding.
      ratio: likewise, as a share of what is let off.
    """

    name: str
    judged: int
    faults: dict[int, Fault]
    units: float
    ratio: float


def judge(setting: Setting, rows: Rows, truth: Truth, results: dict[str, np.ndarray]) -> list[Verdict]:
    """The verdicts on what was returned."""
    beyond = np.array([kind == BEYOND for kind in rows.kinds])
    # Of a row beyond the range the value alone is judged, unless it is NaN; nor is a derivative made of infinite ones.
    told = beyond & np.isnan(results["value"]).any(axis=1)
    least = setting.precision.tiny / setting.precision.unit
    values = next(quantity.wanted for quantity in truth.quantities if quantity.name == "value")
    faint = np.abs(np.nan_to_num(values)).max(axis=1, keepdims=True) < least
    lost = np.abs(np.nan_to_num(values)).max(axis=1, keepdims=True) < 16 * setting.precision.tiny
    verdicts = []
    for quantity in truth.quantities:
        if quantity.name in results:
            seen = _blurred(quantity, faint, lost, setting)
            if quantity.name != "value":
                seen = dataclasses.replace(seen, judged=seen.judged & ~beyond[:, None])
            verdicts.append(_judge(setting, rows, truth, seen, results[quantity.name], beyond, told))
    return verdicts


def _blurred(quantity: Quantity, faint: Flags, lost: Flags, setting: Setting) -> Quantity:
    """The same, of rows all of whose values are hardly above what underflows, with what their derivatives lose.

    They are sums of products with factors that underflow: right to a unit of the largest of the row, and in ``lam``,
    which the width is a power of, as an order of magnitude; and ``lost`` where the values underflow.
    """
    if quantity.name == "value":
        return quantity
    share = 1.0 if quantity.name == "d/dlam" else np.where(lost, 1.0, setting.precision.unit)
    bound = quantity.bound + np.where(faint, share * quantity.scale, 0.0)
    return dataclasses.replace(quantity, bound=bound)


def _overflows(setting: Setting, rows: Rows) -> np.ndarray:
    """Rows of magnitudes too large for their strength: what their derivatives are made of is infinite. Not at 0."""
    if not setting.operator.startswith("topk_mag") and setting.phi != "half_square":
        return np.zeros(setting.rows, bool)
    with np.errstate(all="ignore"):
        x = np.where(rows.where & np.isfinite(rows.x), np.abs(real(rows.x)), 0.0)
        most = np.abs(real(rows.cotangent)).max(axis=1) + 1
        between = x.max(axis=1) * most / ((setting.p - 1) * real(rows.lam))
        return (rows.lam > 0) & (between > float(jnp.finfo(setting.working).max) / 64)


def _lost_on_the_way(setting: Setting, rows: Rows) -> Reals:
    """What underflows in derivatives of magnitudes, which are computed in units of a row, where these are small."""
    if not setting.operator.startswith("topk_mag") and setting.phi != "half_square":
        return np.zeros((setting.rows, 1), Real)
    x = np.where(rows.where & np.isfinite(rows.x), np.abs(real(rows.x)), 0.0).max(axis=1, keepdims=True)
    unit = np.clip(np.sqrt(real(rows.lam))[:, None] * x ** (0.5 * setting.p), 2.0**-80, 1)
    most = np.abs(real(rows.cotangent)).max(axis=1, keepdims=True)
    return np.where(rows.lam[:, None] > 0, 16 * setting.precision.tiny / unit * most, 0)


def _judge(
    setting: Setting,
    rows: Rows,
    truth: Truth,
    quantity: Quantity,
    result: np.ndarray,
    beyond: np.ndarray,
    told: np.ndarray,
) -> Verdict:
    dtype = jnp.finfo(result.dtype)
    got, largest = real(result), Real(float(dtype.max))
    value = quantity.name == "value"
    with np.errstate(all="ignore"):
        # What underflows on the way may be lost, in each term of a sum; that of an exponential times its argument.
        terms = setting.n if got.shape[1] == 1 else 1
        times = 128 if setting.phi == "exp" else 16
        floor = max(times * setting.precision.tiny * terms, float(dtype.smallest_subnormal))
        if not value:  # made of products, one factor of which may be as small as the other is large
            floor = np.maximum(floor, np.sqrt(setting.precision.tiny) * quantity.scale)
            floor = np.maximum(floor, setting.precision.tiny / setting.precision.unit)
            floor = np.maximum(floor, _lost_on_the_way(setting, rows))
        rounding = 0.0 if float(dtype.eps) <= setting.precision.unit else 0.5 * float(dtype.eps)
        allowed = quantity.bound + rounding * np.abs(quantity.wanted) + floor
        error = np.minimum(np.abs(got - quantity.wanted), np.abs(got - quantity.other))
        error = np.where((got == quantity.wanted) | (got == quantity.other), 0.0, error)
        # What overflows may do so.
        over = np.maximum(np.abs(quantity.wanted) + allowed, quantity.scale) > largest / 64
        error = np.where(over & ~np.isnan(got), 0.0, error)
        ratio = np.where(error == 0, 0.0, error / allowed)
        visible = np.maximum(error - floor, 0)
        units = np.where(quantity.scale > 0, visible / (quantity.scale * float(dtype.eps)), 0.0)
    nan, infinite = np.isnan(got), np.isinf(got) & ~over & (quantity.wanted != got)
    judged = (quantity.judged & ~truth.nan)[:, 0]
    unknown = judged & (np.isnan(quantity.wanted) | np.isnan(quantity.bound)).any(axis=1)
    judged = judged & ~unknown
    # An absent entry is 0 whatever its row.
    wrong_nan = truth.nan[:, 0] & (~nan & (rows.where if got.shape[1] > 1 else True)).any(axis=1) & value
    wrong = judged & (ratio > 1).any(axis=1)
    unwanted = ~truth.nan[:, 0] & ~(truth.free[:, 0] & (not value or ~judged))
    faults = {
        int(row): Fault(quantity.name, "not known to the oracle", np.inf, np.inf, np.inf)
        for row in np.flatnonzero(unknown & ~beyond)
    }
    unheard = beyond & (np.isnan(quantity.wanted) | np.isnan(quantity.bound)).any(axis=1)
    if not value:
        told = told | (_overflows(setting, rows) & (nan | infinite).any(axis=1))
        told = told | (nan & over).any(axis=1)  # a sum of infinite terms of both signs
    for row in np.flatnonzero(wrong_nan | wrong | (unwanted & (nan | infinite).any(axis=1))):
        if unheard[row] or told[row] or (beyond[row] and nan[row].any()):
            continue
        verdict = "NaN" if nan[row].any() and not truth.nan[row, 0] else "infinite" if infinite[row].any() else "wrong"
        if not judged[row] and verdict == "wrong" and not wrong_nan[row]:
            continue
        worst = int(np.argmax(np.nan_to_num(ratio[row], nan=np.inf, posinf=np.inf)))
        found = (float(array[row, worst]) for array in (error, units, ratio))
        faults[int(row)] = Fault(quantity.name, verdict, *found)
    right = judged & ~np.isin(np.arange(len(judged)), list(faults)) & ~nan.any(axis=1)
    return Verdict(quantity.name, int(judged.sum()), faults, _most(units[right]), _most(ratio[right]))


def _most(values: Reals) -> float:
    return float(np.max(values, initial=0.0)) if not np.isnan(values).any() else float("inf")
