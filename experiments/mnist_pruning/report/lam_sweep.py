"""Validation error of the hardened network against lam."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from experiments.core.record.summary import interval
from experiments.core.report.results import Run
from experiments.core.report.style import GREEN, ORANGE, PURPLE, RED, SKY
from experiments.mnist_pruning.report import naming

# label, colour, dashes, marker; circles and squares tell p apart without colour.
_SERIES = {
    ("relaxed", "constant", 2.0): ("p = 2, constant", RED, "-", "o"),
    ("relaxed", "constant", 4 / 3): ("p = 4/3, constant", GREEN, "-", "s"),
    ("relaxed", "geometric", 2.0): ("p = 2, annealed from there", ORANGE, "--", "o"),
    ("relaxed", "geometric", 4 / 3): ("p = 4/3, annealed from there", PURPLE, "--", "s"),
    ("straight_through", "constant", 2.0): ("gradient alone, p = 2", SKY, ":", "^"),
}
_TICKS = (3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 90)


def lam_sweep(panels: Sequence[tuple[tuple[int, ...], list[Run]]]) -> Figure | None:
    """One panel for each set of pruned layers; None if nothing among the runs varies lam."""
    drawable = [(layers, _series(runs)) for layers, runs in panels]
    drawable = [(layers, series) for layers, series in drawable if series]
    if not drawable:
        return None
    figure = Figure(figsize=(2.6 + 4.0 * len(drawable), 3.8), layout="constrained")
    all_axes = figure.subplots(1, len(drawable), sharey=True, squeeze=False)[0]
    shown = {}
    for axes, (layers, series) in zip(all_axes, drawable, strict=True):
        for key, runs in series.items():
            shown[key] = _draw(axes, key, runs)
        axes.set_xscale("log")
        axes.set_xlabel("$\\lambda$ (if annealed: at the start)")
        axes.set_title(naming.of_layers(layers))
    all_axes[0].set_yscale("log")
    all_axes[0].yaxis.set_major_locator(FixedLocator(_TICKS))
    all_axes[0].yaxis.set_minor_locator(NullLocator())
    all_axes[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    all_axes[0].set_ylabel("validation error after hardening, %")
    order = [key for key in _SERIES if key in shown]
    figure.legend([shown[key] for key in order], [_SERIES[key][0] for key in order], loc="outside right center")
    return figure


def _series(runs: Sequence[Run]) -> dict[tuple[str, str, float], list[Run]]:
    series: dict[tuple[str, str, float], list[Run]] = {}
    for run in runs:
        config = run.config
        for key in _SERIES:
            same_p = abs(config["p"] - key[2]) < 1e-9
            if (config["method"], config["lam"]["schedule"]) == key[:2] and same_p:
                series.setdefault(key, []).append(run)
    return {key: sorted(found, key=lambda run: run.config["lam"]["start"]) for key, found in series.items()}


def _draw(axes: Axes, key: tuple[str, str, float], runs: Sequence[Run]) -> Line2D:
    """The mean, and every seed as a small dot: an interval of three seeds says less."""
    _, colour, dashes, marker = _SERIES[key]
    lams = [run.config["lam"]["start"] for run in runs]
    finals = [run.final("hardened_error") for run in runs]
    means = [interval(values)["mean"] for values in finals]
    for lam, values in zip(lams, finals, strict=True):
        dots = [value for value in values if value is not None]
        axes.plot([lam] * len(dots), dots, linestyle="", marker=".", markersize=4, color=colour, alpha=0.5)
    (line,) = axes.plot(
        lams,
        [np.nan if mean is None else mean for mean in means],
        color=colour,
        linestyle=dashes,
        marker=marker,
        markersize=5,
        markerfacecolor=colour if dashes == "-" else "white",
    )
    return line
