"""Findings on the isotonic solvers, from the benchmark on whatever hardware it was run, accelerators first."""

from pathlib import Path

from experiments.core.report.benchmarks import first_on_accelerator, name_of, on_accelerator
from experiments.core.report.finding import Finding, Measured, Numbers, Verdict

_DYKSTRA = "Dykstra, 100 iterations"


def runtime(results: Path) -> Finding | None:
    """Dykstra's algorithm against PAV."""
    record = first_on_accelerator(results, "isotonic")
    if record is None:
        return None
    ratios = {n: dykstra["median_ms"] / pav["median_ms"] for n, pav, dykstra in _pairs(record)}
    ours = f"times of {_DYKSTRA}, over those of PAV: " + ", ".join(
        f"{ratio:.2g} (n = {n:,})" for n, ratio in ratios.items()
    )
    least, most, sizes = min(ratios.values()), max(ratios.values()), list(ratios)
    brief = f"{least:.2g} to {most:.2g} times the time of PAV (100 iterations, n = {sizes[0]:,} to {sizes[-1]:,})"
    faster = sum(ratio < 1 for ratio in ratios.values())
    why = f"faster at {faster} of {len(ratios)} sizes, on {name_of(record)}"
    verdict: Verdict = "reproduced" if faster == len(ratios) else "partly" if faster else "not"
    return Finding(
        ours,
        verdict if on_accelerator(record) else "substitute",
        why if on_accelerator(record) else f"{why}: no accelerator was measured",
        brief,
        plain=f"Dykstra's algorithm is faster than PAV at {faster} of {len(ratios)} sizes, {_where(record)}.",
        unit="times of 100 iterations, over those of PAV",
        measured=[Measured(f"n = {n:,}", ratio) for n, ratio in ratios.items()],
    )


def convergence(results: Path) -> Finding | None:
    """The output of Dykstra's algorithm after a hundred iterations."""
    record = first_on_accelerator(results, "exactness")
    if record is None:
        return None
    errors = {(row["n"], f"{row['lam']:g}"): row["max_abs_error"] for row in record["rows"] if row["way"] == _DYKSTRA}
    ours = "largest error of a mask entry: " + "; ".join(
        f"lam = {lam}: " + ", ".join(f"{error:.1g} (n = {n:,})" for (n, its), error in errors.items() if its == lam)
        for lam in dict.fromkeys(lam for _, lam in errors)
    )
    same = sum(error < 1e-3 for error in errors.values())
    why = f"within 0.001 of the exact mask in {same} of {len(errors)} cases"
    brief = f"{why}; largest error of an entry: {max(errors.values()):.1g}"
    worst: dict[str, float] = {}
    for (n, _), error in errors.items():
        worst[f"n = {n:,}"] = max(error, worst.get(f"n = {n:,}", 0.0))
    return Finding(
        ours,
        "reproduced" if same == len(errors) else "partly" if same else "not",
        why,
        brief,
        plain=f"After 100 iterations the mask is that of PAV, within 0.001, in {same} of {len(errors)} cases.",
        unit="largest error of an entry of the mask, whatever lam",
        measured=[Measured(name, error) for name, error in worst.items()],
    )


def _where(record: Numbers) -> str:
    return "on an accelerator" if on_accelerator(record) else "on a processor, not an accelerator"


def _pairs(record: Numbers) -> list[tuple[int, Numbers, Numbers]]:
    """By size, the records of PAV and of Dykstra's algorithm."""
    ways = {(row["way"], row["n"]): row for row in record["rows"]}
    sizes = sorted(n for way, n in ways if way == "PAV")
    return [(n, ways["PAV", n], ways[_DYKSTRA, n]) for n in sizes if (_DYKSTRA, n) in ways]
