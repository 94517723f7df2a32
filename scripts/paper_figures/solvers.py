"""Figure 4: time and error of PAV, Dykstra's algorithm and the scalar equation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from experiments.core.errors import UsageError
from experiments.core.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from scripts.paper_figures.style import TEXT
from scripts.report.benchmarks import DYKSTRA, SAME, machines, name_of

Rows = Sequence[dict[str, Any]]

_SECTIONS = ("isotonic", "exactness")  # times and errors
# Colour and marker of each way to the mask; thin lines only select or sort.
_COMMON = {"markersize": 3.5, "linewidth": 1.3}
LOOKS: dict[str, dict[str, Any]] = {
    "PAV": _COMMON | {"color": RED, "marker": "o"},
    "Dykstra, 100 iterations": _COMMON | {"color": BLUE, "marker": "s"},
    "Dykstra, 10 iterations": _COMMON | {"color": PURPLE, "marker": "D"},
    "scalar equation": _COMMON | {"color": GREEN, "marker": "^"},
    "lax.top_k": _COMMON | {"color": GREY, "marker": "", "linewidth": 1.0, "linestyle": "--"},
    "jnp.sort": _COMMON | {"color": ORANGE, "marker": "", "linewidth": 1.0, "linestyle": ":"},
}
_LEAST_ERROR = 2e-9  # below this float32 tells nothing, and 0 has no logarithm
_LAM = 0.1  # the lam of the errors against n


def figure4(bench: Path) -> Figure:
    """Draws three panels for each machine: time and error against the length of a row, and Dykstra's error over lam.

    Args:
      bench: a directory with a JSON file for each machine, whose sections `isotonic` and `exactness` are drawn.

    Raises:
      UsageError: no machine has both sections.
    """
    measured = [machine for machine in machines(bench) if {*_SECTIONS} <= machine.keys()]
    if not measured:
        raise UsageError(
            f"no machine in {bench} has {' and '.join(_SECTIONS)}: python -m scripts.bench --only=isotonic,exactness"
        )
    figure = Figure(figsize=(TEXT, 0.4 + 2.3 * len(measured)), layout="constrained")
    panels = figure.subplots(len(measured), 3, squeeze=False)
    for (time, error, over_lam), machine in zip(panels, measured, strict=True):
        times, errors = (machine[section] for section in _SECTIONS)
        _draw_times(time, times)
        _draw_errors(error, errors["rows"])
        _draw_over_lam(over_lam, errors["rows"])
        error.set_xlim(time.get_xlim())
    lines = [Line2D([], [], **look, label=name) for name, look in LOOKS.items()]
    figure.legend(handles=lines, loc="outside lower center", ncols=len(LOOKS), handlelength=1.6, columnspacing=1.0)
    return figure


def _draw_times(axes: Axes, document: dict[str, Any]) -> None:
    for name, look in LOOKS.items():
        rows = [row for row in document["rows"] if row["way"] == name]
        n = [row["n"] for row in rows]
        axes.plot(n, [row["median_ms"] for row in rows], **look)
        lower, upper = ([row[f"{which}_quartile_ms"] for row in rows] for which in ("lower", "upper"))
        axes.fill_between(n, lower, upper, color=look["color"], alpha=0.2, linewidth=0)
    _scale(axes, "$n$, entries in a row", f"time, ms ($\\lambda = {document['settings']['lam']:g}$)")
    axes.set_title(name_of(document), fontsize=7, loc="left")


def _draw_errors(axes: Axes, rows: Rows) -> None:
    for name, look in LOOKS.items():
        _draw_line(axes, "n", [row for row in rows if row["way"] == name and row["lam"] == _LAM], look)
    _scale(axes, "$n$, entries in a row", f"largest error ($\\lambda = {_LAM:g}$)")


def _draw_over_lam(axes: Axes, rows: Rows) -> None:
    rows = [row for row in rows if row["way"] == DYKSTRA]
    lengths = list(dict.fromkeys(row["n"] for row in rows))
    for n, alpha in zip(lengths, np.linspace(0.2, 1.0, len(lengths)), strict=True):
        look = LOOKS[DYKSTRA] | {"markersize": 2.5, "linewidth": 1.0, "alpha": alpha, "label": f"$n = {n:,}$"}
        _draw_line(axes, "lam", [row for row in rows if row["n"] == n], look)
    _scale(axes, r"$\lambda$", "largest error of 100 iterations")
    axes.legend(
        fontsize=5.5, ncols=3, loc="lower left", bbox_to_anchor=(-0.15, 0.98), handlelength=1.6, columnspacing=1.0
    )


def _draw_line(axes: Axes, against: str, rows: Rows, look: dict[str, Any]) -> None:
    axes.plot([row[against] for row in rows], [max(row["max_abs_error"], _LEAST_ERROR) for row in rows], **look)
    axes.axhline(SAME, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_ylim(1e-9, 3.0)


def _scale(axes: Axes, x: str, y: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=12))
        axis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=12))
        axis.set_minor_formatter(NullFormatter())
