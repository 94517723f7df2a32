"""Findings on the isotonic solvers, from the benchmark on whatever hardware it was run, accelerators first."""

from pathlib import Path

from experiments.core.report.finding import (
    NOT_POSSIBLE,
    Finding,
    Measured,
    Numbers,
    Verdict,
    answer,
    first_on_accelerator,
    in_every_case,
    name_of,
    on_accelerator,
)
from experiments.core.report.markdown import number

SAME = 1e-3  # the largest error of an entry with which a mask counts as exact
_DYKSTRA = "Dykstra, 100 iterations"
_PAPER_LAM = 1e-4  # the only one that the paper states
_LAM_IN_USE = 0.1  # the least that validation chose for a router with a constant lam


def runtime(results: Path) -> Finding | None:
    """Dykstra's algorithm against PAV."""
    record = first_on_accelerator(results, "isotonic")
    if record is None:
        return None
    ratios = [(n, dykstra["median_ms"] / pav["median_ms"]) for n, pav, dykstra in _pairs(record)]
    signs = [1 if ratio < 1 else -1 for _, ratio in ratios]
    times = [ratio for _, ratio in ratios]
    verdict = Verdict(answer(signs), f"{min(times):.2g} to {max(times):.2g} times as long")
    there = on_accelerator(record)
    return Finding(
        f"100 iterations of Dykstra's algorithm take {verdict.number} as PAV, and are faster at {signs.count(1)} of "
        f"{len(signs)} sizes, on {'an accelerator' if there else 'a processor, not an accelerator'}.",
        verdict if there else NOT_POSSIBLE,
        None if there else verdict,
        name_of(record),
        "times of 100 iterations, over those of PAV",
        [Measured(f"n = {n:,}", ratio) for n, ratio in ratios],
    )


def convergence(results: Path) -> Finding | None:
    """The output of Dykstra's algorithm after a hundred iterations, by lam at every size."""
    record = first_on_accelerator(results, "exactness")
    if record is None:
        return None
    by_lam: dict[float, list[float]] = {}
    for row in record["rows"]:
        if row["way"] == _DYKSTRA:
            by_lam.setdefault(row["lam"], []).append(row["max_abs_error"])
    as_stated = by_lam.get(_PAPER_LAM, [])
    in_use = [error for lam, errors in by_lam.items() if lam >= _LAM_IN_USE for error in errors]
    told = [f"at {_exact(as_stated)} sizes at lam = {number(_PAPER_LAM)}"] if as_stated else []
    told += [f"in {_exact(in_use)} cases with lam from {_LAM_IN_USE:g} on"] if in_use else []
    return Finding(
        f"After 100 iterations every entry of the mask is that of PAV within {SAME:g} {', and '.join(told)}.",
        _same(as_stated, f"at {_exact(as_stated)} sizes"),
        _same(in_use, f"in {_exact(in_use)} cases, lam from {_LAM_IN_USE:g}"),
        name_of(record),
        "largest error of an entry of the mask at any size",
        [
            Measured(f"lam = {number(lam)}: the same at {_exact(errors)} sizes", max(errors))
            for lam, errors in sorted(by_lam.items())
        ],
    )


def _same(errors: list[float], shown: str) -> Verdict | None:
    return Verdict(in_every_case(error < SAME for error in errors), shown) if errors else None


def _exact(errors: list[float]) -> str:
    return f"{sum(error < SAME for error in errors)} of {len(errors)}"


def _pairs(record: Numbers) -> list[tuple[int, Numbers, Numbers]]:
    """By size, the records of PAV and of Dykstra's algorithm."""
    ways = {(row["way"], row["n"], row["k"]): row for row in record["rows"]}
    sizes = sorted((n, k) for way, n, k in ways if way == "PAV")
    return [(n, ways["PAV", n, k], ways[_DYKSTRA, n, k]) for n, k in sizes if (_DYKSTRA, n, k) in ways]
