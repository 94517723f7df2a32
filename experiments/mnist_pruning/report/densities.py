"""Every method at its best, in pictures: error against density, and the density of each layer over time."""

import textwrap
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from experiments.core.record.summary import interval
from experiments.core.report.results import Run
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, RED
from experiments.mnist_pruning.report import best, naming
from experiments.mnist_pruning.report.curves import TICKS

_LAYERS = (BLUE, GREEN, RED, BLACK)
_APART = {"gradual": GREEN}  # where few are drawn, each has a colour of its own
_MARKERS = "osD^vP*X<>ph8d"  # where there are more methods than colours


def error_against_density(runs: Sequence[Run], task: str) -> Figure:
    """A panel for each budget; points are moved aside a little, so that intervals do not cover each other."""
    return _against_density({key[1:]: runs for key, runs in best.cells(runs).items() if key[0] == task}, runs, task)


def in_brief(runs: Sequence[Run], task: str) -> Figure | None:
    """The error against density of the main methods, if there are several, that share the whole network's budget."""
    cells = {
        key[1:]: [run for run in members if _is_main(run)]
        for key, members in best.cells(runs).items()
        if key[:2] == (task, "network")
    }
    several = len({naming.kind(run) for members in cells.values() for run in members}) > 1
    return _against_density(cells, runs, task, size=(7.0, 4.6), loc="upper right", colours=_APART) if several else None


def _is_main(run: Run) -> bool:
    config = run.config
    if config["method"] == "relaxed":
        return (config["p"], config["lam"]["schedule"]) == (1.5, "geometric")
    return config["method"] in ("hard", "gradual", "movement")


def _against_density(
    cells: Mapping[tuple[str, float], Sequence[Run]],
    runs: Sequence[Run],
    task: str,
    size: tuple[float, float] | None = None,
    loc: str = "outside right center",
    colours: Mapping[str, str] = MappingProxyType({}),
) -> Figure:
    """Draws the runs by budget and density; `colours` are those of methods that are not to have their usual one."""
    budgets = [budget for budget in best.BUDGETS if any(key[0] == budget for key in cells)]
    figure = Figure(figsize=size or (3.4 + 4.2 * len(budgets), 4.6), layout="constrained")
    panels = figure.subplots(1, len(budgets), sharey=True, squeeze=False)[0]
    series: dict[tuple[str, str], dict[float, Run]] = {}  # by budget and legend
    for (budget, density), members in cells.items():
        for run in members:
            series.setdefault((budget, naming.kind(run)), {})[density] = run
    names = list(dict.fromkeys(name for _, name in series))
    shown: dict[str, Any] = {}
    for axes, budget in zip(panels, budgets, strict=True):
        if dense := best.dense_of(runs, task):
            shown["dense"] = _band(axes, interval(dense.final("test_error")))
        for i, name in enumerate(names):
            if found := series.get((budget, name)):
                marker = _MARKERS[i % len(_MARKERS)]
                shown[name] = _errors(axes, found, marker, aside=1.02 ** (i - len(names) / 2), colours=colours)
        _scales(axes, sorted({density for _, density in cells}))
        axes.set_title(f"budget of {best.BUDGETS[budget]}")
    panels[0].set_ylabel("test error, %")
    where: Any = figure if loc.startswith("outside") else panels[0]
    where.legend(list(shown.values()), list(shown), loc=loc, fontsize=9)
    return figure


def _band(axes: Axes, error: dict[str, Any]) -> Line2D:
    half = error["interval95"] or 0.0
    axes.axhspan(error["mean"] - half, error["mean"] + half, color=GREY, alpha=0.2, linewidth=0)
    return axes.axhline(error["mean"], color=GREY, linewidth=1.5)


def _errors(
    axes: Axes, runs: dict[float, Run], marker: str, *, aside: float, colours: Mapping[str, str]
) -> ErrorbarContainer:
    first = next(iter(runs.values()))
    colour, dashes = naming.look(first)
    densities = sorted(runs)
    errors = [interval(runs[density].final(best.METRIC)) for density in densities]
    return axes.errorbar(
        [100 * density * aside for density in densities],
        [np.nan if error["mean"] is None else error["mean"] for error in errors],
        [error["interval95"] or 0.0 for error in errors],
        color=colours.get(first.config["method"], colour),
        linestyle=dashes,
        marker=marker,
        markersize=5,
        capsize=2,
        linewidth=1.5,
    )


def _scales(axes: Axes, densities: Sequence[float]) -> None:
    """Logarithmic; but errors that are all about as large have a linear scale, as none of the ticks lies among them."""
    low, high = axes.get_ylim()
    axes.set_xscale("log")
    _ticks(axes.xaxis, [100 * density for density in densities])
    if sum(low <= tick <= high for tick in TICKS) > 1:
        axes.set_yscale("log")
        _ticks(axes.yaxis, TICKS)
    axes.set_xlabel("weights kept, %")


def _ticks(axis: Axis, values: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(values))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def density_over_time(runs: Sequence[Run]) -> Figure | None:
    """A panel for each run: the share of weights that are not zero, by layer and epoch, as the mean over seeds.

    A layer without weights has no line, on a logarithmic scale. None if there are more layers than lines that can be
    told apart.
    """
    if any(len(run.rows[0]["train_density_per_layer"]) > len(_LAYERS) for run in runs):
        return None
    columns = min(len(runs), 4)
    rows = -(-len(runs) // columns)
    figure = Figure(figsize=(1.5 + 2.6 * columns, 0.6 + 2.3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, run in zip(panels, runs, strict=False):
        epochs = [row["epoch"] for row in run.rows]
        for layer, colour in zip(run.rows[0]["train_density_per_layer"], _LAYERS, strict=False):
            means = [interval(row["train_density_per_layer"][layer])["mean"] for row in run.rows]
            shares = [np.nan if mean is None else 100 * mean for mean in means]
            axes.plot(epochs, shares, color=colour, label=f"layer {layer}", linewidth=1.5)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_title(textwrap.fill(naming.kind(run), 30), fontsize=9)
    for axes in panels[len(runs) :]:
        axes.set_visible(False)
    for axes in panels[max(len(runs) - columns, 0) : len(runs)]:  # below which there is none
        axes.tick_params(labelbottom=True)
    figure.supxlabel("epochs")
    figure.supylabel("weights that are not zero, %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=9)
    return figure
