"""The tables and the figure of results/relaxations: every relaxed mask under one protocol."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from experiments.core.record.files import read_object
from experiments.core.record.summary import interval
from experiments.core.report import results
from experiments.core.report.markdown import grid, plus_minus, signed
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, bars
from scripts.report.benchmarks import RECORD

SECTION = "relaxations"
REFERENCE = "relaxed, p = 2"
# The colour and dashes of each relaxation, and its `config.mask.name` in pruning; empty if it was not pruned with.
LOOKS = {
    REFERENCE: ((RED, "-"), "relaxed_p2"),
    "relaxed, p = 3/2": ((ORANGE, "-"), "relaxed_p3_2"),
    "relaxed, p = 4/3": ((GREEN, "-"), "relaxed_p4_3"),
    "sigmoid": ((BLUE, "--"), "sigmoid"),
    "LapSum": ((SKY, "--"), "lapsum"),
    "DFTopK": ((BLACK, "--"), "dftopk"),
    "entropic transport": ((PURPLE, "--"), "entropic_ot"),
    "SoftSort": ((GREY, "-."), "softsort"),
    "NeuralSort": ((BLACK, "-."), ""),
    "perturbed, 100 samples": ((GREY, ":"), "perturbed"),
}
_PANELS = {  # by field of a row: the label of its axis, and whether the axis is logarithmic
    "distance": ("distance to the hard mask", True),
    "not_zero": ("entries that are not 0, of {n}", True),
    "cosine": ("gradient: cosine to that of noise", False),
    "gain": ("gain of a hard mask from a step", False),
}
# Left out of nearest neighbours: the record has the same noise in every step, so nothing was learned.
_LEFT_OUT = ("perturbed, 100 samples",)
_ADVICE = "put back a copy of it, or make it again"
Rows = Sequence[dict[str, Any]]


def _section(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_object(directory / "bench" / RECORD, _ADVICE)[SECTION]
    return found


def blocks(directory: Path) -> dict[str, list[str]]:
    """Returns the lines of each table, by the name of its block, from the results in a directory."""
    section = _section(directory)
    shown = [row for row in section["masks"] if row["width"] == section["settings"]["width"]]
    return {
        "relaxed masks": _masks(shown),
        "relaxed gradients": _gradients(shown),
        "relaxed times": _times(section["times"]),
        "relaxed tasks": _tasks(section["neighbours"], directory / SECTION),
    }


def _masks(rows: Rows) -> list[str]:
    cells = ([row["relaxation"], f"{row['not_zero']:.1f}", f"{row['distance']:.3f}"] for row in rows)
    return grid(["mask", "entries not 0", "distance to hard"], cells, text=1)


def _gradients(rows: Rows) -> list[str]:
    header = ["mask", "entries not 0", "norm", "cosine", "gain of a step"]
    means = ([plus_minus(row[name]) for name in ("norm", "cosine", "gain")] for row in rows)
    cells = [
        [row["relaxation"], f"{row['gradient_not_zero']:.1f}", *texts] for row, texts in zip(rows, means, strict=True)
    ]
    return grid(header, [*cells, ["the noise itself", "-", "1", "1", plus_minus(rows[0]["gain_of_reference"])]], text=1)


def _times(rows: Rows) -> list[str]:
    """Returns the lines of times relative to the reference, at the smallest and largest size, and of memory there."""
    shapes = list(dict.fromkeys((row["batch"], row["n"], row["k"]) for row in rows))
    found = {(row["batch"], row["n"], row["k"], row["what"]): row for row in rows}
    ends = [(shape, mode) for shape in (shapes[0], shapes[-1]) for mode in ("forward", "forward+backward")]
    cells = []
    for name in LOOKS:
        ratios = []
        for shape, mode in ends:
            mine, other = (found.get((*shape, f"{which} {mode}")) for which in (name, REFERENCE))
            ratios.append(f"{mine['median_ms'] / other['median_ms']:.2g}" if mine and other else "-")
        largest = found.get((*shapes[-1], f"{name} forward+backward"))
        cells.append([name, *ratios, f"{largest['memory']:.1f}" if largest else "-"])
    sizes = [f"{batch:,} x {n:,}" for batch, n, _ in (shapes[0], shapes[-1])]
    return grid(["mask", sizes[0], "with gradient", sizes[1], "with gradient", "memory"], cells, text=1)


def _tasks(neighbours: dict[str, Any], directory: Path) -> list[str]:
    """Returns the lines of test errors in both tasks, each with its difference from the reference, paired by seed."""
    pruned = {run.name: run.final("hardened_error") for run in results.load(directory)[0] if "/" not in run.name}
    nearest = {name: one["test_error"]["per_seed"] for name, one in neighbours.items() if name not in _LEFT_OUT}
    others = {"before learning": ("before learning", ""), "no gradient of the mask": ("", "hard")}
    others["the gradient of all weights"] = "", "identity_straight_through"
    cells = []
    for name, (of_nearest, of_pruned) in ({name: (name, look[1]) for name, look in LOOKS.items()} | others).items():
        row = [name]
        for values, reference in (
            (nearest.get(of_nearest), nearest[REFERENCE]),
            (pruned.get(f"final-{of_pruned}"), pruned[f"final-{LOOKS[REFERENCE][1]}"]),
        ):
            row.append(plus_minus(interval(list(values))) if values else "-")
            row.append(signed(_difference(values, reference)) if values and values is not reference else "-")
        cells.append(row)
    return grid(["gradient", "nearest neighbours", "minus p = 2", "pruning", "minus p = 2"], cells, text=1)


def _difference(values: Sequence[float | None], reference: Sequence[float | None]) -> dict[str, Any]:
    pairs = zip(values, reference, strict=True)
    return interval([None if a is None or b is None else a - b for a, b in pairs])


def figure(directory: Path) -> Figure:
    """Draws distance, sparsity and quality of the gradient of each relaxation against the width of its step."""
    section = _section(directory)
    drawn = Figure(figsize=(6.8, 5.4), layout="constrained")
    drawn.subplots(2, 2, sharex=True)
    for panel, (field, (label, logarithmic)) in zip(drawn.axes, _PANELS.items(), strict=True):
        for name, (look, _) in LOOKS.items():
            _line(panel, [row for row in section["masks"] if row["relaxation"] == name], field, look, name)
        panel.set(xscale="log", ylabel=label.format(n=section["settings"]["rows"][1]))
        if logarithmic:
            panel.set_yscale("log")
            panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 4.0)))
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter(NullFormatter())
    for panel in drawn.axes[2:]:
        panel.set_xlabel("width of the step from 0 to 1")
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=4)
    return drawn


def _line(panel: Axes, rows: Rows, field: str, look: tuple[str, str], name: str) -> None:
    widths = [row["width"] for row in rows]
    if isinstance(rows[0][field], dict):
        bars(panel, widths, [row[field] for row in rows], look, linewidth=1.2)
    else:
        panel.plot(widths, [row[field] for row in rows], look[1], color=look[0], linewidth=1.2, label=name)
