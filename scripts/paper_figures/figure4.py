"""Figure 4: what PAV, Dykstra's algorithm and the scalar equation cost, and how exact they are."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from experiments.core.record.files import read_object
from experiments.core.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
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
DASHES: Any = ("-", "--", ":")  # of the strengths


def draw(setting: Setting) -> Figure:
    """Two panels for each machine that has been measured: time, and error, against the length of a row."""
    files = sorted(setting.bench.glob("isotonic-*.json"))
    if not files:
        raise MissingError(
            f"figure4 is left out: no isotonic-*.json in {setting.bench}; python -m scripts.bench.isotonic makes one"
        )
    figure = Figure(figsize=(TEXT, 0.4 + 2.05 * len(files)), layout="constrained")
    panels = figure.subplots(len(files), 2, squeeze=False)
    for (time, error), path in zip(panels, files, strict=True):
        _machine(time, error, path)
    lines = [Line2D([], [], **_look(name), label=name) for name in LOOKS]
    figure.legend(handles=lines, loc="outside lower center", ncols=len(LOOKS), handlelength=1.6, columnspacing=1.0)
    return figure


def _look(name: str) -> dict[str, Any]:
    return {"markersize": 3.5, "linewidth": 1.3} | LOOKS[name]


def _machine(time: Axes, error: Axes, path: Path) -> None:
    document = read_object(path, "put back a copy of it, or make it again")
    lams = [f"{lam:g}" for lam in document["settings"]["lams"]]
    for name in LOOKS:
        rows = [row for row in document["rows"] if row["way"] == name]
        n = [row["n"] for row in rows]
        time.plot(n, [row["median_ms"] for row in rows], **_look(name))
        lower, upper = ([row[f"{which}_quartile_ms"] for row in rows] for which in ("lower", "upper"))
        time.fill_between(n, lower, upper, color=LOOKS[name]["color"], alpha=0.2, linewidth=0)
        for lam, dashes in zip(lams, DASHES, strict=False):
            errors = [max(row["max_abs_error"][lam], LEAST_ERROR) for row in rows if row["max_abs_error"]]
            if errors:
                error.plot(n, errors, **_look(name) | {"linestyle": dashes})
    for axes in (time, error):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("$n$, entries in a row")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(numticks=12))
            axis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=12))
            axis.set_minor_formatter(NullFormatter())
    time.set_ylabel(f"time, ms ($\\lambda = {lams[0]}$)")
    time.set_title(_hardware(document["environment"]), fontsize=7, loc="left")
    error.set_xlim(time.get_xlim())
    error.set_ylim(1e-9, 3.0)
    error.set_yticks([10.0**e for e in (-8, -6, -4, -2, 0)])
    error.set_ylabel("largest error of an entry")
    shown = [
        Line2D([], [], color="black", linewidth=1.3, linestyle=dashes, label=rf"$\lambda = {lam}$")
        for lam, dashes in zip(lams, DASHES, strict=False)
    ]
    error.legend(handles=shown, loc="center right", borderaxespad=0.3)


def _hardware(environment: dict[str, Any]) -> str:
    devices, machine = environment["devices"], environment["machine"]
    return f"{machine['cpu']}, {machine['cores']} cores" if devices["platform"] == "cpu" else devices["kind"]


FIGURE4 = Drawing(
    name="figure4",
    number=4,
    caption=(
        "From scores to the relaxed top-k mask ($p = 2$, $k = n / 10$, one row of standard normal float32). Left: "
        "median time and quartiles; PAV and Dykstra's algorithm include sorting and undoing it, `lax.top_k` and "
        "`jnp.sort` are shown for scale. Right: largest error of an entry against NumPy in float64. An iteration of "
        "Dykstra's algorithm reaches neighbours only: a fixed number of iterations, 100 in the paper, falls short as "
        "soon as the pooled block is much longer. The scalar equation needs no order."
    ),
    draw=draw,
)
