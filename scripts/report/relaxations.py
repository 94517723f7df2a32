"""The tables and the figure of results/relaxations: every relaxed mask under one protocol."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from experiments.core.record.summary import interval
from experiments.core.report import results
from experiments.core.report.markdown import grid, plus_minus, signed
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, bars
from scripts.report.benchmarks import machines

SECTION = "relaxations"
REFERENCE = "relaxed, p = 2"


class Shown(NamedTuple):
    """How a relaxation is shown: its colour and dashes, its paper, and its `config.mask.name` if it was pruned with."""

    look: tuple[str, str]
    source: str
    pruned: str = ""


_OURS = "Sander et al., 2023"
RELAXATIONS = {
    REFERENCE: Shown((RED, "-"), _OURS, "relaxed_p2"),
    "relaxed, p = 3/2": Shown((ORANGE, "-"), _OURS, "relaxed_p3_2"),
    "relaxed, p = 4/3": Shown((GREEN, "-"), _OURS, "relaxed_p4_3"),
    "sigmoid": Shown((BLUE, "--"), "Amos et al., 2019; Qian et al., 2022", "sigmoid"),
    "LapSum": Shown((SKY, "--"), "Struski et al., 2025", "lapsum"),
    "DFTopK": Shown((BLACK, "--"), "Zhu et al., 2025", "dftopk"),
    "entropic transport": Shown((PURPLE, "--"), "Cuturi et al., 2019; Xie et al., 2020", "entropic_ot"),
    "SoftSort": Shown((GREY, "-."), "Prillo and Eisenschlos, 2020"),
    "NeuralSort": Shown((BLACK, "-."), "Grover et al., 2019"),
    "sorting network": Shown((BLUE, "-."), "Petersen et al., 2021"),
    "perturbed, 100 samples": Shown((GREY, ":"), "Berthet et al., 2020"),
    "I-MLE, 100 samples": Shown((RED, ":"), "Niepert et al., 2021", "imle"),
}
_NOISES = {"gaussian": "Gaussian", "uniform": "uniform"}
_PANELS = {  # by field of a row: the label of its axis, and whether the axis is logarithmic
    "distance": ("distance to the hard mask", True),
    "not_zero": ("entries that are not 0, of {n}", True),
    **{f"cosine_{noise}": (f"gradient: cosine, {name} noise", False) for noise, name in _NOISES.items()},
}
_NARROW = 0.01  # the width of the second table of gradients
Rows = Sequence[dict[str, Any]]


def _sections(directory: Path, name: str) -> list[dict[str, Any]]:
    """Returns a section of the benchmarks of each machine that has it, or has begun it."""
    found = (one.get(name) or one.get(f"partial-{name}") for one in machines(directory / "bench"))
    return [section for section in found if section]


def blocks(directory: Path) -> dict[str, list[str]]:
    """Returns the lines of each table, by the name of its block, from the results in a directory."""
    (section,) = _sections(directory, SECTION)
    shown, narrow = (
        [row for row in section["masks"] if row["width"] == width] for width in (section["settings"]["width"], _NARROW)
    )
    return {
        "relaxed masks": _masks(shown, section["settings"]["rows"][1]),
        "relaxed gradients": _gradients(shown),
        "narrow gradients": _gradients(narrow, norm=False),
        "relaxed times": _times(directory),
        "relaxed neighbours": _neighbours(directory),
        "relaxed pruning": _pruning(directory / SECTION),
    }


def _masks(rows: Rows, n: int) -> list[str]:
    header = ["mask", "source", "exact zeros", "entries not 0", "in float64", "distance to hard"]
    cells = []
    for row in rows:
        name, counts = row["relaxation"], (row["not_zero"], row["not_zero_float64"])
        texts = (f"{count:.1f}" for count in counts)
        cells.append([name, RELAXATIONS[name].source, _zeros(name, *counts, n), *texts, f"{row['distance']:.3f}"])
    return grid(header, cells, text=3)


def _zeros(name: str, not_zero: float, not_zero_float64: float, n: int) -> str:
    """Says why a mask has zeros: those of a formula are as many in float64, those by underflow are fewer."""
    if "samples" in name:
        return "by chance"
    if not_zero < not_zero_float64:
        return "by underflow"
    return "by construction" if not_zero < n else "none"


def _gradients(rows: Rows, *, norm: bool = True) -> list[str]:
    names = {"norm_gaussian": "norm"} if norm else {}
    names |= {f"cosine_{noise}": f"cosine, {name}" for noise, name in _NOISES.items()} | {"gain": "gain of a step"}
    cells = []
    for row in rows:
        texts = (plus_minus(row[field]) for field in names)
        cells.append([row["relaxation"], f"{row['gradient_not_zero']:.1f}", *texts])
    for noise, name in _NOISES.items():
        gain = plus_minus(rows[0][f"gain_of_{noise}"])
        own = {f"norm_{noise}": "1", f"cosine_{noise}": "1", "gain": gain}
        cells.append([f"{name} noise itself", "-", *(own.get(field, "-") for field in names)])
    return grid(["mask", "entries not 0", *names.values()], cells, text=1)


def _times(directory: Path) -> list[str]:
    """Returns the lines of times relative to the reference, at the smallest and largest size, and of memory there."""
    rows = _sections(directory, f"{SECTION}-times")[-1]["times"]
    shapes = list(dict.fromkeys((row["batch"], row["n"], row["k"]) for row in rows))
    found = {(row["batch"], row["n"], row["k"], row["what"]): row for row in rows}
    ends = [(shape, mode) for shape in (shapes[0], shapes[-1]) for mode in ("forward", "forward+backward")]
    cells = []
    for name in RELAXATIONS:
        ratios = []
        for shape, mode in ends:
            mine, other = (found.get((*shape, f"{which} {mode}")) for which in (name, REFERENCE))
            ratios.append(f"{mine['median_ms'] / other['median_ms']:.2g}" if mine and other else "-")
        largest = found.get((*shapes[-1], f"{name} forward+backward"))
        cells.append([name, *ratios, f"{largest['memory']:.1f}" if largest else "-"])
    sizes = [f"{batch:,} x {n:,}" for batch, n, _ in (shapes[0], shapes[-1])]
    return grid(["mask", sizes[0], "with gradient", sizes[1], "with gradient", "memory"], cells, text=1)


def _neighbours(directory: Path) -> list[str]:
    """Returns the lines of test errors of nearest neighbours, and their differences from the reference by seed."""
    found: dict[str, Any] = {}
    for section in _sections(directory, f"{SECTION}-neighbours"):
        found |= section["neighbours"]
    reference, cells = found[REFERENCE]["test_error"], []
    for name in ("before learning", *RELAXATIONS):
        one = found.get(name, {})
        error, width = one.get("test_error"), one.get("width", "-")
        cells.append(
            [_alone(name), str(width), *([plus_minus(error), _minus(error, reference)] if error else ["-", "-"])]
        )
    return grid(["mask", "width", "test error, %", "minus p = 2"], cells, text=1)


def _pruning(directory: Path) -> list[str]:
    """Returns the lines of test errors of pruning, best first, and their differences from two references by seed."""
    runs = {run.name: run.final("hardened_error") for run in results.load(directory)[0] if "/" not in run.name}
    named = {"all weights": "identity_straight_through", "kept weights only": "hard"}
    named |= {name: shown.pruned for name, shown in RELAXATIONS.items() if shown.pruned}
    found = {name: interval(list(runs[f"final-{of_run}"])) for name, of_run in named.items()}
    cells = []
    for name, error in sorted(found.items(), key=lambda item: item[1]["mean"]):
        differences = (_minus(error, found[other]) for other in ("all weights", REFERENCE))
        cells.append([_alone(name), plus_minus(error), *differences])
    return grid(["gradient of", "test error, %", "minus all weights", "minus p = 2"], cells, text=1)


def _alone(name: str) -> str:
    """Returns a name without the number of samples, which is another where a mask is trained with."""
    return name.split(", 100")[0]


def _minus(values: dict[str, Any], reference: dict[str, Any]) -> str:
    if values is reference:
        return "-"
    pairs = zip(values["per_seed"], reference["per_seed"], strict=True)
    return signed(interval([None if a is None or b is None else a - b for a, b in pairs]))


def figure(directory: Path) -> Figure:
    """Draws distance, sparsity and cosines of the gradient of each relaxation against the width of its step."""
    (section,) = _sections(directory, SECTION)
    drawn = Figure(figsize=(6.8, 5.4), layout="constrained")
    drawn.subplots(2, 2, sharex=True)
    for panel, (field, (label, logarithmic)) in zip(drawn.axes, _PANELS.items(), strict=True):
        for name, shown in RELAXATIONS.items():
            rows = sorted((row for row in section["masks"] if row["relaxation"] == name), key=lambda row: row["width"])
            _line(panel, rows, field, shown.look, name)
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
