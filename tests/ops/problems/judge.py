"""Tries problems: what an operator returns beside what the oracle says."""

import dataclasses
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from tests.ops.oracle.problem import problem
from tests.ops.oracle.reals import real
from tests.ops.oracle.rounding import Expected, expected
from tests.ops.problems import calls, entries
from tests.ops.problems.entries import Rows
from tests.ops.problems.operators import OPERATORS
from tests.ops.problems.setting import PERMUTAHEDRON, Setting, read, write


@dataclasses.dataclass
class Tally:
    """The outcome of some problems.

    Attributes:
      tried: how many.
      judged: entries that were compared, by the name of what they are: ``value``, ``x``, ``k`` or ``lam``.
      failures: what is wrong with a problem, and the line that reproduces it.
    """

    tried: int = 0
    judged: dict[str, int] = dataclasses.field(default_factory=dict)
    failures: list[str] = dataclasses.field(default_factory=list)


def attempt(tally: Tally, setting: Setting, seed: int, batches: int = 1) -> None:
    """Tries rows of a setting, all by one compiled program, and adds what comes of them."""
    function = None
    with jax.enable_x64(setting.working == "float64"):
        for batch in range(batches):
            rows = entries.draw(setting, seed, batch)
            if function is None:
                known = (float(rows.k[0]), float(rows.lam[0])) if setting.known else (None, None)
                function = calls.compiled(setting, *known)
            tally.tried += setting.rows
            for row, wrong in _wrong(tally, setting, rows, function):
                tally.failures.append(f"{wrong}: PROBLEM='{write(setting, seed=seed, batch=batch, row=row)}'")


def again(line: str) -> str:
    """Says what is wrong with the problem that a line describes; nothing if the line is empty."""
    setting, drawn = read(line)
    with jax.enable_x64(setting.working == "float64"):
        rows = entries.draw(setting, drawn["seed"], drawn["batch"])
        known = (float(rows.k[0]), float(rows.lam[0])) if setting.known else (None, None)
        found = dict(_wrong(Tally(), setting, rows, calls.compiled(setting, *known)))
    row = drawn["row"]
    given = {name: getattr(rows, name)[row] for name in ("x", "k", "lam", "where", "extra", "cotangent")}
    return f"{found[row]}: {given}" if row in found else ""


def _wrong(tally: Tally, setting: Setting, rows: Rows, function: calls.Compiled) -> Iterator[tuple[int, str]]:
    """Wrong rows of a batch, and what is wrong with them."""
    try:
        results = calls.run(setting, rows, function)
    except Exception as error:  # whatever an operator dies of is a finding
        if rows.inside.any() or not isinstance(error, ValueError):
            yield 0, f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return
    faults: dict[int, list[str]] = {}
    answer = wanted(setting, rows)
    for name, quantity in answer.items():
        if name == "x" and quantity.wanted.shape == answer["value"].wanted.shape:
            # An entry whose value underflows may lose its derivative, too, which can be a number still.
            value = np.abs(answer["value"].wanted)
            lost = np.where((value > 0) & (value < setting.tiny), np.nan, 1)
            quantity = dataclasses.replace(quantity, wanted=quantity.wanted * lost, other=quantity.other * lost)
        if name in results:
            for row, fault in _faults(tally, setting, rows, name, quantity, results).items():
                faults.setdefault(row, []).append(fault)
    for row, found in sorted(faults.items()):
        yield row, f"{setting.operator} row {row}: {'; '.join(found)}"


def wanted(setting: Setting, rows: Rows) -> dict[str, Expected]:
    """The answer of the oracle for these rows."""
    # A share is rounded down to how many that is. Nothing of k goes into projections but what sums are off by.
    k = np.floor(rows.k) if setting.density else 0 if setting.operator in PERMUTAHEDRON else rows.k
    given = {"cotangent": rows.cotangent, "where": rows.where, "extra": rows.extra}
    k, lam = (1, 1) if setting.operator == "sparsemax" else (k, rows.lam)
    of = problem(rows.x, k, lam, setting.p, unit=setting.unit, **given)
    with np.errstate(all="ignore"):
        found = expected(functools.partial(OPERATORS[setting.operator].oracle, setting), of)
    if setting.density:
        nothing = np.zeros_like(of.k)
        found["k"] = Expected(nothing, nothing, nothing, nothing)
    return found


def _faults(
    tally: Tally, setting: Setting, rows: Rows, name: str, of: Expected, results: dict[str, np.ndarray]
) -> dict[int, str]:
    got, result = real(results[name]), jnp.finfo(results[name].dtype)
    column = (len(got), 1)
    with np.errstate(all="ignore"):
        size = np.nan_to_num(of.scale, posinf=np.inf)
        error = np.minimum(np.abs(got - of.wanted), np.abs(got - of.other))
        error = np.where((got == of.wanted) | (got == of.other), 0, error)
        rounding = 0.0 if float(result.eps) <= setting.unit else 0.5 * float(result.eps)
        allowed = of.allowed + rounding * np.abs(of.wanted) + _floor(setting, rows, name, size, got)
        # Whatever overflows may do so.
        over = (
            np.maximum(np.nan_to_num(np.abs(of.wanted)), size) + np.nan_to_num(of.allowed, posinf=0)
            > float(result.max) / 64
        )
        judged = ~np.isnan(of.wanted) & ~over & ~np.isnan(of.allowed)
        ratio = np.where(judged & (error > 0), error / allowed, 0)
    nan_row = (np.isnan(real(rows.x)) & rows.where).any(axis=1, keepdims=True)
    infinite = (np.isinf(real(rows.x)) & rows.where).any(axis=1, keepdims=True)
    inside = rows.inside[:, None]
    if name == "value":  # a NaN makes all of its row NaN; beyond the range, a value may be NaN but not wrong
        present = rows.where if got.shape[1] > 1 else np.ones(column, bool)
        bad = np.where(nan_row, ~np.isnan(got) & present, (ratio > 1) | (~np.isfinite(got) & judged & inside))
        bad = bad & (~nan_row | _all_nan(setting)) & ~(np.isnan(got) & ~inside)
    else:
        bad = ((ratio > 1) | (~np.isfinite(got) & ~over & ~infinite)) & ~_overflows(setting, rows) & inside & ~nan_row
    right = judged & ~bad & ~nan_row & inside
    tally.judged[name] = tally.judged.get(name, 0) + int(right.sum())
    faults = {}
    for row in np.flatnonzero(bad.any(axis=1)):
        at = int(np.argmax(np.where(bad[row], np.nan_to_num(ratio[row], nan=np.inf), -1)))
        said = f"{float(got[row, at])!r} is not {float(of.wanted[row, at])!r} +- {float(allowed[row, at]):.2g}"
        faults[int(row)] = f"{name if name == 'value' else 'd/d' + name} [{at}] {said}"
    return faults


def _all_nan(setting: Setting) -> bool:
    """Whether all of a row with a NaN is NaN: entries of it, or of its group, compete with each other."""
    return setting.groups != "runs"


def _overflows(setting: Setting, rows: Rows) -> np.ndarray:
    """Rows of magnitudes too large for their strength: what their derivatives are made of is infinite."""
    if not (setting.operator.startswith(("topk_mag", "soft_sort", "soft_rank")) or setting.phi == "half_square"):
        return np.zeros((setting.rows, 1), bool)
    x = np.where(rows.where & np.isfinite(rows.x), np.abs(real(rows.x)), 0).max(axis=1)
    lam = np.where(rows.lam > 0, real(rows.lam), 1)
    between = x * (np.abs(real(rows.cotangent)).max(axis=1) + 1) / ((setting.p - 1) * lam)
    return ((rows.lam > 0) & (between > float(jnp.finfo(setting.working).max) / 64))[:, None]


def _floor(setting: Setting, rows: Rows, name: str, size: np.ndarray, got: np.ndarray) -> np.ndarray:
    """What underflows on the way may be lost, in each term of a sum; of a product with factors of all sizes more."""
    terms, tiny = setting.n if got.shape[1] == 1 else 1, setting.tiny
    floor = (128 if setting.phi == "exp" else 16) * tiny * terms
    floor = np.full((setting.rows, 1), max(floor, float(jnp.finfo(setting.dtype).smallest_subnormal)))
    if name != "value":
        floor = np.maximum(floor, np.maximum(np.sqrt(tiny) * size, tiny / setting.unit))
    if not (setting.operator.startswith("topk_mag") or setting.phi == "half_square"):
        return floor
    # Computed in units of a row, in which 1 is between its largest entry and the width of that, and the width of 1e-30
    # has all its digits, unless the largest entry overflows.
    x, lam, p = np.where(rows.where & np.isfinite(rows.x), np.abs(real(rows.x)), 0), real(rows.lam)[:, None], setting.p
    largest = x.max(axis=1, keepdims=True)
    unit = np.minimum(np.sqrt(lam) * largest ** (0.5 * p), lam * 1e-30 ** (p - 1) / 2.5e-31)
    unit = np.maximum(np.clip(unit, 2.0**-80, 1), largest * 2.0**-100)
    if name == "value":
        # The threshold is known to twice `tiny` units: so far a position may be off, of which the share is a power.
        of_entry = 4 * tiny * unit * np.maximum(x, 1e-300) ** (2 - p) / ((p - 1) * lam)
        of_entry = np.maximum(of_entry, 16 * tiny * unit)
        return np.where(lam > 0, np.maximum(floor, of_entry if got.shape[1] > 1 else 0), floor)
    most = np.abs(real(rows.cotangent)).max(axis=1, keepdims=True)
    return np.where(lam > 0, np.maximum(floor, 16 * tiny / unit * most), floor)
