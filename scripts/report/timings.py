"""The tables of the READMEs that are made of the timings on one machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.core.record.files import read_object
from experiments.core.report.markdown import grid, line
from scripts.report.benchmarks import SAME

Rows = Sequence[dict[str, Any]]
Ratios = dict[str, dict[str, float]]  # time over that of lax.top_k, by "batch, n, k", and by contestant and mode
Columns = Sequence[tuple[str, str]]  # a name, and a contestant with its mode

RECORD = "cpu-amd-epyc-2c.json"  # of the machine whose timings the READMEs show
_BASELINE = "lax.top_k"
_MODES = ("forward", "forward+backward")
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
# Rows of 1e7 are as those of 1e6.
SHOWN = ("12800, 400, 28", "128, 1000, 100", "1, 25088, 2508", "1, 1000000, 100000")
_SIZES = (100, 1000, 10**4, 10**5)  # of the solvers


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the lines of each table, by its name."""
    machine = read_object(results / "bench" / RECORD, "put back a copy of it, or make it again")
    masks, times, errors = machine["masks"], machine["isotonic"], machine["exactness"]
    lam = times["settings"]["lam"]
    ratios, single = _ratios(masks["cases"]), _single_rows(times["rows"])
    slower = {n: ratio for (n, _), ratio in single.items() if ratio > 1}
    range_ = f"{min(slower.values()):.2g} to {max(slower.values()):.2g}"
    first = [f"1, {min(slower)} to {max(slower)}, lam = {lam:g}", range_, *["-"] * (len(_SHORT) - 1)]
    short = [first, *_cells({shape: ratios[shape] for shape in SHOWN}, _SHORT)]
    all_ratios: Ratios = {f"1, {n}, {k}": {f"topk_mask p=2 lam={lam:g}": ratio} for (n, k), ratio in single.items()}
    for shape, found in ratios.items():
        ours = {name: ratio for name, ratio in found.items() if name.startswith(("topk_mask", "topk_mag"))}
        all_ratios[shape] = all_ratios.get(shape, {}) | ours
    return {
        "speed": grid([_SHAPE, *(name for name, _ in _SHORT)], short, text=1),
        "speed in full": grid([_SHAPE, *(name for name, _ in _FULL)], _cells(ratios, _FULL), text=1),
        "slower": _slower(all_ratios),
        "programs": _programs(masks["programs"]),
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


def _slower(ratios: Ratios) -> list[str]:
    """Shows by size how many ratios are above 1: slower than `lax.top_k`, the largest, then the range of the others."""
    rows = []
    for shape, found in ratios.items():
        if slower := sum(ratio > 1 for ratio in found.values()):
            worst = max(found, key=found.__getitem__)
            rows.append([shape, f"{slower} of {len(found)}", f"{found[worst]:.2g}", f"`{worst}`"])
    others = [ratio for found in ratios.values() for ratio in found.values() if ratio <= 1]
    head = [line([_SHAPE, "slower in", "at most", "which is"]), line(["---", "---:", "---:", "---"])]
    return [*head, *map(line, rows), "", f"All other {len(others)} ratios are {min(others):.2g} to {max(others):.2g}."]


def _programs(programs: Rows) -> list[str]:
    """Shows equations of every program, and seconds to trace and lower it, and to compile it."""
    found = {
        (row["program"], row["lam"], row["mode"]): f"{row['equations']}: {row['traced_s'] + row['lowered_s']:.2f} s + "
        f"{row['compiled_s']:.2f} s"
        for row in programs
    }
    columns = [(way, mode) for way in ("known", "traced") for mode in _MODES]
    names = {"known": "k and lam known", "traced": "traced", "forward": "forward", "forward+backward": "with gradient"}
    rows = [
        [f"`{name}`", *(found.get((name, *column), "-") for column in columns)]
        for name in dict.fromkeys(row["program"] for row in programs)
    ]
    return grid(["", *(f"{names[way]}, {names[mode]}" for way, mode in columns)], rows, text=1)


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
