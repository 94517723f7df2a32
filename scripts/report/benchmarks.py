"""Findings on times, from the benchmarks on whatever hardware they were run, accelerators first.

Every machine has a file in results/bench, in which every benchmark has a section.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.core.record.files import read_object
from experiments.core.report.finding import Finding, Numbers, Verdict, answer, in_every_case, where_possible

SAME = 1e-3  # the largest error of an entry with which a mask counts as exact
DYKSTRA = "Dykstra, 100 iterations"  # as many as in the paper
_PAPER_LAM = 1e-4  # the only one that the paper states
_LAM_IN_USE = 0.1  # the least that validation chose for a router with a constant lam
# The paper's seconds of a step relative to one with cross-entropy, and hours relative to those with the hard router.
_PAPER_LOSSES = {"top-3, p = 2": 9.7 / 9.5, "top-3, p = 4/3": 10 / 9.5}
_PAPER_ROUTER = 15 / 10


def machines(bench: Path) -> list[dict[str, Any]]:
    """The benchmarks of each machine that has a file in a directory."""
    return [read_object(path, "put back a copy of it, or make it again") for path in sorted(bench.glob("*.json"))]


def name_of(record: Numbers) -> str:
    """Names the hardware of a benchmark, for example `2 cores of AMD EPYC`."""
    devices, machine = record["environment"]["devices"], record["environment"]["machine"]
    return devices["kind"] if _on_accelerator(record) else f"{machine['cores']} cores of {machine['cpu']}"


def runtime(results: Path) -> Finding | None:
    """Dykstra's algorithm against PAV, at every size that both were timed at."""

    def judge(record: Numbers) -> Verdict:
        medians = {(row["way"], row["n"], row["k"]): row["median_ms"] for row in record["rows"]}
        ratios = [
            medians[DYKSTRA, n, k] / median
            for (way, n, k), median in medians.items()
            if way == "PAV" and (DYKSTRA, n, k) in medians
        ]
        verdict = answer([1 if ratio < 1 else -1 for ratio in ratios])
        return Verdict(verdict, f"{min(ratios):.2g} to {max(ratios):.2g} times as long")

    return _timed(results, "isotonic", judge)


def losses(results: Path) -> Finding | None:
    """The time that the losses take by themselves, over that of a step of fine-tuning ViT-B/16 at 384 pixels."""

    def judge(record: Numbers) -> Verdict:
        extra = {name: record["losses"][name]["one_plus_extra_over_step"] for name in _PAPER_LOSSES}
        verdict = in_every_case(ratio <= _PAPER_LOSSES[name] for name, ratio in extra.items())
        return Verdict(verdict, f"{100 * (max(extra.values()) - 1):.2g} % of a step")

    return _timed(results, "losses", judge, variant="B/16", size=384)


def routers(results: Path) -> Finding | None:
    """The time of a step over that with the hard router.

    On CPUs the time that the routers take alone counts, as whole steps differ by more than that from one to the next.
    """

    def judge(record: Numbers) -> Verdict:
        by = "ratio_of_steps" if _on_accelerator(record) else "one_plus_extra_over_step"
        most = max(record["routers"][name][by] for name in ("relaxed, logits", "Dykstra, 10 iterations"))
        return Verdict(in_every_case([most >= _PAPER_ROUTER]), f"{most:.3f} times as long")

    return _timed(results, "router", judge)


def convergence(results: Path) -> Finding | None:
    """The output of Dykstra's algorithm after a hundred iterations, by lam at every size."""
    record = _first(results, "exactness")
    if record is None:
        return None
    errors = [(row["lam"], row["max_abs_error"]) for row in record["rows"] if row["way"] == DYKSTRA]

    def verdict(is_meant: Callable[[float], bool], told: str) -> Verdict | None:
        exact = [error < SAME for lam, error in errors if is_meant(lam)]
        return Verdict(in_every_case(exact), told.format(f"{sum(exact)} of {len(exact)}")) if exact else None

    return Finding(
        verdict(lambda lam: lam == _PAPER_LAM, "at {} sizes"),
        verdict(lambda lam: lam >= _LAM_IN_USE, f"in {{}} cases, lam from {_LAM_IN_USE:g}"),
        name_of(record),
    )


def _timed(results: Path, benchmark: str, judge: Callable[[Numbers], Verdict], **papers: Any) -> Finding | None:
    """The verdict on a benchmark, as stated if it was made on an accelerator and with the paper's settings."""
    record = _first(results, benchmark)
    if record is None:
        return None
    as_in_paper = _on_accelerator(record) and all(record["settings"][name] == papers[name] for name in papers)
    return where_possible(judge(record), name_of(record), as_in_paper=as_in_paper)


def _first(results: Path, benchmark: str) -> Any:
    """The record of a benchmark on an accelerator, else on a CPU, else None: the paper's hardware comes first."""
    records = [machine[benchmark] for machine in machines(results / "bench") if benchmark in machine]
    return min(records, key=lambda record: not _on_accelerator(record), default=None)


def _on_accelerator(record: Numbers) -> bool:
    return record["environment"]["devices"]["platform"] != "cpu"
