"""Findings on times, from the benchmarks on whatever hardware they were run, accelerators first.

Every machine has a file in results/bench, in which every benchmark has a section.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.core.record.files import read_object
from experiments.core.report.finding import NOT_POSSIBLE, Finding, Numbers, Verdict, answer, in_every_case
from experiments.core.report.markdown import number

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
    """Dykstra's algorithm against PAV."""
    record = _first(results, "isotonic")
    if record is None:
        return None
    medians = {(row["way"], row["n"], row["k"]): row["median_ms"] for row in record["rows"]}
    ratios = {
        n: medians[DYKSTRA, n, k] / median
        for (way, n, k), median in sorted(medians.items(), key=lambda one: one[0][1:])
        if way == "PAV" and (DYKSTRA, n, k) in medians
    }
    signs = [1 if ratio < 1 else -1 for ratio in ratios.values()]
    times = f"{min(ratios.values()):.2g} to {max(ratios.values()):.2g} times as long"
    where = "an accelerator" if _on_accelerator(record) else "a processor, not an accelerator"
    return _timed(
        f"100 iterations of Dykstra's algorithm take {times} as PAV, and are faster at {signs.count(1)} of "
        f"{len(signs)} sizes, on {where}.",
        Verdict(answer(signs), times),
        record,
        "times of 100 iterations, over those of PAV",
        {f"n = {n:,}": ratio for n, ratio in ratios.items()},
        as_in_paper=_on_accelerator(record),
    )


def losses(results: Path) -> Finding | None:
    """The time that the losses take by themselves, over that of a step of fine-tuning."""
    record = _first(results, "losses")
    if record is None:
        return None
    extra = {name: record["losses"][name]["one_plus_extra_over_step"] for name in _PAPER_LOSSES}
    settings, most = record["settings"], f"{100 * (max(extra.values()) - 1):.2g} % of a step"
    return _timed(
        f"By the time of the losses alone a top-3 loss adds {most} of ViT-{settings['variant']} at {settings['size']} "
        "pixels at most; in the paper it adds 2 % (p = 2) and 5 % (p = 4/3).",
        Verdict(in_every_case(ratio <= _PAPER_LOSSES[name] for name, ratio in extra.items()), most),
        record,
        "% that a step takes longer than with cross-entropy",
        {name: 100 * (ratio - 1) for name, ratio in extra.items()},
        as_in_paper=_on_accelerator(record) and (settings["variant"], settings["size"]) == ("B/16", 384),
    )


def routers(results: Path) -> Finding | None:
    """The time of a step over that with the hard router.

    On CPUs the time that the routers take alone counts, as whole steps differ by more than that from one to the next.
    """
    record = _first(results, "router")
    if record is None:
        return None
    whole = _on_accelerator(record)
    by, how = ("ratio_of_steps", "") if whole else ("one_plus_extra_over_step", ", by routers alone")
    ratios = {name: record["routers"][name][by] for name in ("relaxed, logits", "Dykstra, 10 iterations")}
    most = f"{max(ratios.values()):.3f} times as long"
    return _timed(
        f"A step of S/32 with a relaxed router takes up to {most} as with the hard one{how}; the paper's takes "
        f"{_PAPER_ROUTER:g} times as long.",
        Verdict(in_every_case([max(ratios.values()) >= _PAPER_ROUTER]), most),
        record,
        "times a step with the hard router",
        ratios,
        as_in_paper=whole,
    )


def convergence(results: Path) -> Finding | None:
    """The output of Dykstra's algorithm after a hundred iterations, by lam at every size."""
    record = _first(results, "exactness")
    if record is None:
        return None
    by_lam: dict[float, list[float]] = {}
    for row in record["rows"]:
        if row["way"] == DYKSTRA:
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
        {
            f"lam = {number(lam)}: the same at {_exact(errors)} sizes": f"{max(errors):.4g}"
            for lam, errors in sorted(by_lam.items())
        },
    )


def _first(results: Path, benchmark: str) -> Any:
    """The record of a benchmark on an accelerator, else on a CPU, else None: the paper's hardware comes first."""
    records = [machine[benchmark] for machine in machines(results / "bench") if benchmark in machine]
    return min(records, key=lambda record: not _on_accelerator(record), default=None)


def _on_accelerator(record: Numbers) -> bool:
    return record["environment"]["devices"]["platform"] != "cpu"


def _timed(
    plain: str, verdict: Verdict, record: Numbers, unit: str, values: Mapping[str, float], *, as_in_paper: bool
) -> Finding:
    """A finding on times: measured as in the paper, or else on hardware of ours."""
    stated, tuned = (verdict, None) if as_in_paper else (NOT_POSSIBLE, verdict)
    shown = {name: f"{round(value, 9):.4g}" for name, value in values.items()}
    return Finding(plain, stated, tuned, name_of(record), unit, shown)


def _same(errors: list[float], shown: str) -> Verdict | None:
    return Verdict(in_every_case(error < SAME for error in errors), shown) if errors else None


def _exact(errors: list[float]) -> str:
    return f"{sum(error < SAME for error in errors)} of {len(errors)}"
