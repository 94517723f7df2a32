"""The tables of the READMEs that are made of the timings on one machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.core.record.files import read_object
from experiments.core.report.markdown import grid
from scripts.report.benchmarks import SAME

Rows = Sequence[dict[str, Any]]
Ratios = dict[str, dict[str, float]]  # time over that of lax.top_k, by "batch, n, k", and by contestant and mode
Columns = Sequence[tuple[str, str]]  # a name, and a contestant with its mode

RECORD = "cpu-amd-epyc-2c.json"  # of the machines whose timings the READMEs show
GPU = "gpu-nvidia-h200.json"
_BASELINE = "lax.top_k"
_SHAPE = "batch, n, k"
_MASKS = (
    ("`topk_mask`, p = 2", "topk_mask p=2 forward"),
    ("with gradient", "topk_mask p=2 forward+backward"),
    ("`topk_mask`, p = 4/3", "topk_mask p=4/3 forward"),
    ("with gradient", "topk_mask p=4/3 forward+backward"),
)
_HARD = ("`hard_topk_mask`", "hard_topk_mask forward")
_PEER = ("jaxopt, p = 2", "jaxopt box section forward")  # which knows p = 2 alone
_SHORT = (*_MASKS, _PEER)
_FULL = (*_MASKS, _HARD, _PEER, ("with gradient", "jaxopt box section forward+backward"))
_ON_GPU = (*_MASKS[:3], _PEER, ("torch.topk", "torch.topk forward"))
# Rows of 1e7 are as those of 1e6.
SHOWN = ("12800, 400, 28", "128, 1000, 100", "1, 25088, 2508", "1, 1000000, 100000")
_SIZES = (100, 1000, 10**4, 10**5)  # of the solvers


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the lines of each table, by its name."""
    machine, gpu = (
        read_object(results / "bench" / name, "put back a copy of it, or make it again") for name in (RECORD, GPU)
    )
    masks, times, errors = machine["masks"], machine["isotonic"], machine["exactness"]
    lam = times["settings"]["lam"]
    ratios, single = _ratios(masks["cases"]), _single_rows(times["rows"])
    slower = {n: ratio for (n, _), ratio in single.items() if ratio > 1}
    range_ = f"{min(slower.values()):.2g} to {max(slower.values()):.2g}"
    first = [f"1, {min(slower)} to {max(slower)}, lam = {lam:g}", range_, *["-"] * (len(_SHORT) - 1)]
    short = [first, *_cells({shape: ratios[shape] for shape in SHOWN}, _SHORT)]
    return {
        "speed": grid([_SHAPE, *(name for name, _ in _SHORT)], short, text=1),
        "speed in full": grid([_SHAPE, *(name for name, _ in _FULL)], _cells(ratios, _FULL), text=1),
        "speed on a GPU": grid(
            [_SHAPE, *(name for name, _ in _ON_GPU)], _cells(_ratios(gpu["masks"]["cases"]), _ON_GPU), text=1
        ),
        "solvers": _solvers(times["rows"], errors["rows"]),
        "exactness": _exactness(errors["rows"]),
    }


def _ratios(cases: Rows) -> Ratios:
    return {
        f"{case['batch']}, {case['n']}, {case['k']}": {
            f"{row['contestant']} {row['mode']}": row["ratio_to"][_BASELINE]
            for row in case["results"]
            if row["status"] == "timed"
        }
        for case in cases
    }


def _single_rows(times: Rows) -> dict[tuple[int, int], float]:
    """Returns, by n and k, the time of the mask of one row by the scalar equation over that of `lax.top_k`."""
    medians = {(row["way"], row["n"], row["k"]): row["median_ms"] for row in times}
    return {
        (n, k): median / medians[_BASELINE, n, k] for (way, n, k), median in medians.items() if way == "scalar equation"
    }


def _cells(ratios: Ratios, columns: Columns) -> list[list[str]]:
    return [
        [shape, *(f"{found[key]:.2g}" if key in found else "-" for _, key in columns)]
        for shape, found in ratios.items()
    ]


def _solvers(times: Rows, errors: Rows) -> list[str]:
    """Shows median milliseconds of every way to the mask, and its largest error at any size up to the last."""
    rows = []
    for way in dict.fromkeys(row["way"] for row in times):
        medians = {row["n"]: f"{row['median_ms']:.2g}" for row in times if row["way"] == way}
        worst = [row["max_abs_error"] for row in errors if row["way"] == way and row["n"] <= _SIZES[-1]]
        rows.append([way, *(medians.get(n, "-") for n in _SIZES), f"{max(worst):.0e}" if worst else "-"])
    return grid(["", *(f"n = {n:,}" for n in _SIZES), "largest error"], rows, text=1)


def _exactness(errors: Rows) -> list[str]:
    """Shows by lam at how many sizes Dykstra's algorithm is exact, and its largest error."""
    ways = [way for way in dict.fromkeys(row["way"] for row in errors) if way.startswith("Dykstra")]
    rows = []
    for lam in dict.fromkeys(row["lam"] for row in errors):
        rows.append([f"{lam:g}"])
        for way in ways:
            found = [row["max_abs_error"] for row in errors if (row["way"], row["lam"]) == (way, lam)]
            rows[-1] += [f"{sum(error < SAME for error in found)} of {len(found)} sizes", f"{max(found):.1g}"]
    return grid(["lam", *(cell for way in ways for cell in (f"{way}: exact in", "largest error"))], rows, text=1)
