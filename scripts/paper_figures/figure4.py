"""Figure 4: what PAV, Dykstra's algorithm and the scalar equation cost, and how exact they are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from experiments.core.record.files import read_object
from experiments.core.report.benchmarks import name_of
from experiments.core.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from scripts.bench import isotonic
from scripts.paper_figures.setting import Drawing, MissingError, Setting
from scripts.paper_figures.style import TEXT

# Colour and marker of each way to the mask; what merely selects or sorts is thin.
LOOKS: dict[str, dict[str, Any]] = {
    "PAV": {"color": RED, "marker": "o"},
    "Dykstra, 100 iterations": {"color": BLUE, "marker": "s"},
    "Dykstra, 10 iterations": {"color": PURPLE, "marker": "D"},
    "scalar equation": {"color": GREEN, "marker": "^"},
    "lax.top_k": {"color": GREY, "marker": "", "linewidth": 1.0, "linestyle": "--"},
    "jnp.sort": {"color": ORANGE, "marker": "", "linewidth": 1.0, "linestyle": ":"},
}
LEAST_ERROR = 2e-9  # float32 says nothing about smaller ones, and a logarithm has no 0
SHOWN = 0.1  # lam of the errors against n
OVER_LAM = "Dykstra, 100 iterations"  # as many as in the paper


def draw(setting: Setting) -> Figure:
    """Three panels for each machine: time and error against the length of a row, and Dykstra's error over lam."""
    advice = "put back a copy of it, or make it again"
    records = [read_object(path, advice) for path in sorted(setting.bench.glob("*.json"))]
    machines = [record for record in records if "isotonic" in record and "exactness" in record]
    if not machines:
        raise MissingError(
            f"figure4 is left out: no machine in {setting.bench} has both isotonic and exactness; "
            "python -m scripts.bench.isotonic measures them"
        )
    figure = Figure(figsize=(TEXT, 0.4 + 2.3 * len(machines)), layout="constrained")
    panels = figure.subplots(len(machines), 3, squeeze=False)
    for (time, error, over_lam), machine in zip(panels, machines, strict=True):
        timed, wrong = machine["isotonic"], machine["exactness"]
        _draw_times(time, timed)
        _draw_errors(error, wrong["rows"])
        _draw_over_lam(over_lam, wrong["rows"])
        error.set_xlim(time.get_xlim())
    lines = [Line2D([], [], **_look(name), label=name) for name in LOOKS]
    figure.legend(handles=lines, loc="outside lower center", ncols=len(LOOKS), handlelength=1.6, columnspacing=1.0)
    return figure


def _look(name: str) -> dict[str, Any]:
    return {"markersize": 3.5, "linewidth": 1.3} | LOOKS[name]


def _draw_times(axes: Axes, document: dict[str, Any]) -> None:
    for name in LOOKS:
        rows = [row for row in document["rows"] if row["way"] == name]
        n = [row["n"] for row in rows]
        axes.plot(n, [row["median_ms"] for row in rows], **_look(name))
        lower, upper = ([row[f"{which}_quartile_ms"] for row in rows] for which in ("lower", "upper"))
        axes.fill_between(n, lower, upper, color=LOOKS[name]["color"], alpha=0.2, linewidth=0)
    _scale(axes, "$n$, entries in a row", f"time, ms ($\\lambda = {document['settings']['lam']:g}$)")
    axes.set_title(name_of(document), fontsize=7, loc="left")


def _draw_errors(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    for name in LOOKS:
        _draw_line(axes, "n", [row for row in rows if row["way"] == name and row["lam"] == SHOWN], **_look(name))
    _scale(axes, "$n$, entries in a row", f"largest error ($\\lambda = {SHOWN:g}$)")


def _draw_over_lam(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    rows = [row for row in rows if row["way"] == OVER_LAM]
    lengths = list(dict.fromkeys(row["n"] for row in rows))
    for n, alpha in zip(lengths, np.linspace(0.2, 1.0, len(lengths)), strict=True):
        look = _look(OVER_LAM) | {"markersize": 2.5, "linewidth": 1.0, "alpha": alpha, "label": f"$n = {n:,}$"}
        _draw_line(axes, "lam", [row for row in rows if row["n"] == n], **look)
    _scale(axes, r"$\lambda$", "largest error of 100 iterations")
    axes.legend(
        fontsize=5.5, ncols=3, loc="lower left", bbox_to_anchor=(-0.15, 0.98), handlelength=1.6, columnspacing=1.0
    )


def _draw_line(axes: Axes, against: str, rows: Sequence[dict[str, Any]], **look: Any) -> None:
    axes.plot([row[against] for row in rows], [max(row["max_abs_error"], LEAST_ERROR) for row in rows], **look)
    axes.axhline(isotonic.SAME, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_ylim(1e-9, 3.0)


def _scale(axes: Axes, x: str, y: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=12))
        axis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=12))
        axis.set_minor_formatter(NullFormatter())


FIGURE4 = Drawing(
    name="figure4",
    number=4,
    caption=(
        "From scores to the relaxed top-k mask ($p = 2$, $k = n / 10$, one row of standard normal float32). Left: "
        "median time and quartiles; PAV and Dykstra's algorithm include sorting and undoing it, `lax.top_k` and "
        "`jnp.sort` are shown for scale. Middle: largest error of an entry against NumPy in float64. Right: the same "
        "over $\\lambda$ after 100 iterations of Dykstra's algorithm, as in the paper (of 400 entries $k = 28$): below "
        "the dotted line we count it as exact. An iteration reaches neighbours only, so 100 fall short once the pooled "
        "block is much longer than 10 entries, which happens the sooner the larger $\\lambda$ and $n$ are. The scalar "
        "equation needs no order."
    ),
    draw=draw,
)
