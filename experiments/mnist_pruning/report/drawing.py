"""The figures of the pruning experiment: training curves, and the error against the density."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from experiments.core.record.summary import interval
from experiments.core.report.finding import Numbers
from experiments.core.report.results import Run, grouped
from experiments.core.report.style import BLACK, GREY, bars, curve
from experiments.mnist_pruning.report.lenet import LENET, PUBLISHED
from experiments.mnist_pruning.report.runs import (
    PRESENTATION,
    best_annealed,
    dense_at_best,
    is_annealed,
    is_tuned,
    layers,
    look_of,
    mean_or_inf,
    method_and_p,
    sections,
    sections_at_best,
    task,
)

_TICKS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 90)
_MARKERS = "osD^v"


def figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Draws Figure 5 for each set of layers, and the errors at their best by density; returns them by name."""
    drawn: dict[str, Figure] = {}
    for (dataset, kept, _, pruned), section in sections(runs, "test").items():
        # The names say nothing of task and density where these are the paper's.
        where = "" if (dataset, kept) == ("mnist", 0.1) else f"-{dataset}-{kept:g}"
        shown = [run for run in section if not is_tuned(run)]
        # A table shows the gradients of many masks behind one hard top-k.
        if shown and all(run.config["method"] != "mask_straight_through" for run in shown):
            drawn[f"figure5{where}-layers{''.join(map(str, pruned)) or 'all'}"] = figure5(shown)
    at_best = sections_at_best(runs)
    for name in dict.fromkeys(key[0] for key in at_best):
        if of_network := [section for key, section in at_best.items() if key[:2] == (name, 0)]:
            suffix = "in-brief" if name == "mnist" else name
            drawn[f"error-against-density-{suffix}"] = error_against_density(of_network, runs)
    return drawn


def figure5(section: Sequence[Run]) -> Figure:
    """Draws test error, and below it the weights that are not 0, against time and epochs; bands are 95 % intervals."""
    figure = Figure(figsize=(12, max(5.6, 3 + 0.36 * len(section))), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row", height_ratios=(2, 1))
    shade = 0.15 if len(section) <= 7 else 0.07  # bands of many runs lie on top of each other
    ends = []
    for run in section:
        errors = [interval(row["test_error"]) for row in run.rows]
        shares = [interval([share and 100 * share for share in row["train_density"]]) for row in run.rows]
        seconds = [row["seconds"] / len(run.summary["seeds"]) for row in run.rows]
        for (above, below), x in zip(panels.T, (seconds, [row["epoch"] for row in run.rows]), strict=True):
            curve(above, x, errors, look_of(run.fields), shade=shade, linewidth=1.8)
            curve(below, x, shares, look_of(run.fields), shade=0, linewidth=1.8)
        ends.append(errors[-1])
    (time, epochs), (time_below, epochs_below) = panels
    time.set(ylabel="test error, %")
    time_below.set(xlabel="training time, s per seed (seeds train together)", ylabel="weights\nnot 0, %")
    epochs_below.set(xlabel="epochs")
    lowest, least = (min(np.nanmin(line.get_ydata()) for line in axes.get_lines()) for axes in (epochs, epochs_below))
    _log_axis(time, max(0.5, 0.85 * lowest), 100, _TICKS)
    _log_axis(time_below, 0.8 * least, 125, (1, 2, 5, 10, 20, 50, 100))
    numbers = ", ".join(map(str, layers(section[0])))
    pruned = f"layers {numbers}" if numbers else "all matrices but embeddings"
    figure.suptitle(f"{task(section[0])}: {100 * section[0].config['density']:g} % of the weights of {pruned} kept")
    curves = zip(epochs.get_lines(), PRESENTATION.labels(section), ends, strict=True)
    worst_first = sorted(curves, key=lambda one: -mean_or_inf(one[2]))
    figure.legend(
        [line for line, _, _ in worst_first],
        [f"{label}: {_in_words(end)}" for _, label, end in worst_first],
        loc="outside right center",
        fontsize=9,
        labelspacing=0.7,
        title="test error after the last epoch",
        title_fontsize=9,
        alignment="left",
    )
    return figure


def _in_words(end: Numbers) -> str:
    if end["mean"] is None:
        return "diverged"
    return f"{end['mean']:.1f} ± {end['interval95']:.1f}" if end["interval95"] else f"{end['mean']:.1f}"


def _log_axis(axes: Axes, low: float, high: float, ticks: Sequence[int]) -> None:
    axes.set(ylim=(low, high), yscale="log")  # limits first: a scale finds none for a flat line
    _ticks(axes.yaxis, ticks)


def _ticks(axis: Axis, values: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(values))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


def error_against_density(of_network: Sequence[Sequence[Run]], runs: Sequence[Run]) -> Figure:
    """Draws the error of the main methods against the share of the network's weights that is kept, dense as a band.

    Points are moved aside a little, so that intervals do not cover each other. The annealed relaxed top-k has
    the p that won on validation. Crosses are numbers of papers for LeNet-300-100.
    """
    pruned = [run for section in of_network for run in section]
    annealed = best_annealed(pruned, runs)
    main = [
        run
        for run in pruned
        if run.config["method"] in ("hard", "identity_straight_through", "st3", "gradual", "movement")
        or (annealed and is_annealed(run) and run.config["p"] == annealed.config["p"])
    ]
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    axes = figure.subplots()
    shown: dict[str, Any] = {}
    for run in dense_at_best(pruned, runs):
        error = interval(run.final("test_error"))
        half = error["interval95"] or 0.0
        axes.axhspan(error["mean"] - half, error["mean"] + half, color=GREY, alpha=0.2, linewidth=0)
        shown["dense"] = axes.axhline(error["mean"], color=GREY, linewidth=1.5)
    for i, (name, members) in enumerate(grouped(main, method_and_p).items()):
        x = [100 * run.config["density"] * 1.02 ** (i - 2) for run in members]
        errors, look = [interval(run.final("hardened_error")) for run in members], look_of(members[0].fields)
        shown[name] = bars(axes, x, errors, look, marker=_MARKERS[i % 5], markersize=5, linewidth=1.5)
    if task(pruned[0]) == LENET:
        papers = [(one.kept, one.error) for one in PUBLISHED if one.kept < 100]
        (shown["other methods, as published"],) = axes.plot(*zip(*papers, strict=True), "x", color=BLACK)
    axes.set_xscale("log")
    _ticks(axes.xaxis, sorted({100 * run.config["density"] for run in pruned}))
    low, high = axes.get_ylim()
    if sum(low <= tick <= high for tick in _TICKS) > 1:  # else no tick lies among the errors
        axes.set_yscale("log")
        _ticks(axes.yaxis, _TICKS)
    axes.set(xlabel="weights kept, %", ylabel="test error, %")
    axes.legend(list(shown.values()), list(shown), loc="upper right", fontsize=9)
    return figure
