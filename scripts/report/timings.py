"""The tables of the READMEs that are made of the timings on one machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.core.record.files import read_object
from experiments.core.report.markdown import grid

Rows = Sequence[dict[str, Any]]

RECORD, GPU = "cpu-amd-epyc-2c.json", "gpu-nvidia-h200.json"  # of the machines whose timings the READMEs show
_BASELINE = "lax.top_k"
# Columns of the masks, each a contestant with its mode; jaxopt knows p = 2 alone.
_MASKS = (
    ("`topk_mask`, p = 2", "topk_mask p=2 forward"),
    ("with gradient", "topk_mask p=2 forward+backward"),
    ("`topk_mask`, p = 4/3", "topk_mask p=4/3 forward"),
    ("with gradient", "topk_mask p=4/3 forward+backward"),
    ("jaxopt, p = 2", "jaxopt box section forward"),
    ("torch.topk", "torch.topk forward"),
)
_HEADER = ["batch, n, k", *(name for name, _ in _MASKS)]
_ON_CPU, _ON_GPU = range(6), (0, 1, 2, 3, 5, 6)  # columns of the tables
# Its rows; those of 1e7 are as those of 1e6.
SHOWN = ("12800, 400, 28", "128, 1000, 100", "1, 25088, 2508", "1, 1000000, 100000")
_SIZES = (100, 1000, 10**4, 10**5)  # of the solvers


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the lines of each table, by its name."""
    advice = "put back a copy of it, or make it again"
    machine, gpu = (read_object(results / "bench" / name, advice) for name in (RECORD, GPU))
    times, errors = machine["isotonic"], machine["exactness"]["rows"]
    full = {row[0]: row for row in map(_masks, machine["masks"]["cases"])}
    brief = [_single_row(times["rows"], times["settings"]["lam"])] + [full[shape] for shape in SHOWN]
    on_gpu = map(_masks, gpu["masks"]["cases"])
    tables = {"speed": (_ON_CPU, brief), "speed in full": (_ON_CPU, full.values()), "speed on a GPU": (_ON_GPU, on_gpu)}
    return {
        name: grid([_HEADER[i] for i in columns], [[row[i] for i in columns] for row in rows], text=1)
        for name, (columns, rows) in tables.items()
    } | {
        "solvers": _solvers(times["rows"], errors),
    }


def _masks(case: dict[str, Any]) -> list[str]:
    """The row of a shape: times over that of the baseline."""
    timed = [row for row in case["results"] if row["status"] == "timed"]
    ratios = {f"{row['contestant']} {row['mode']}": f"{row['ratio_to'][_BASELINE]:.2g}" for row in timed}
    return [f"{case['batch']}, {case['n']}, {case['k']}", *(ratios.get(key, "-") for _, key in _MASKS)]


def _single_row(times: Rows, lam: float) -> list[str]:
    """The row of short vectors, one at a time, where the mask takes longer than the baseline."""
    medians = {(row["way"], row["n"]): row["median_ms"] for row in times}
    ratios = {n: median / medians[_BASELINE, n] for (way, n), median in medians.items() if way == "scalar equation"}
    slower = {n: ratio for n, ratio in ratios.items() if ratio > 1}
    range_ = f"{min(slower.values()):.2g} to {max(slower.values()):.2g}"
    return [f"1, {min(slower)} to {max(slower)}, lam = {lam:g}", range_, *["-"] * (len(_MASKS) - 1)]


def _solvers(times: Rows, errors: Rows) -> list[str]:
    """Shows median milliseconds of every way to the mask, and its largest error at any size up to the last."""
    rows = []
    for way in dict.fromkeys(row["way"] for row in times):
        medians = {row["n"]: f"{row['median_ms']:.2g}" for row in times if row["way"] == way}
        worst = [row["max_abs_error"] for row in errors if row["way"] == way and row["n"] <= _SIZES[-1]]
        rows.append([way, *(medians.get(n, "-") for n in _SIZES), f"{max(worst):.0e}" if worst else "-"])
    return grid(["", *(f"n = {n:,}" for n in _SIZES), "largest error"], rows, text=1)
