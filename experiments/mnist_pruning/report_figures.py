"""The figures of the pruning experiment, of a frame of its runs."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from experiments.core.record.summary import interval
from experiments.core.report.markdown import p_name
from experiments.core.report.results import Run
from experiments.core.report.runs import RUN, dotted
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, RED, Look
from experiments.mnist_pruning.presentation import (
    PRESENTATION,
    cells,
    dense_at_best,
    is_papers,
    is_tuned,
    kinds,
    layers,
    method_of,
    sections,
    task,
)

_TICKS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 90)
_SHARES = (1, 2, 5, 10, 20, 50, 100)
_LAYERS = (BLUE, GREEN, RED, BLACK)


def draw(found: pd.DataFrame) -> dict[str, Figure]:
    """Returns the figures by name: Figure 5 of each set of layers, the error by lam, and methods at their best."""
    drawn: dict[str, Figure] = {}
    tests = sections(found, "test")
    for key, section in tests.items():
        tuned = section[[is_tuned(str(name)) for name in section.index]]
        others = section.drop(tuned.index)
        fields = others[RUN].map(lambda run: dotted(run.config))
        main = others[fields.map(lambda one: one["method"] in ("dense", "hard") or is_papers(one) or _is_annealed(one))]
        parts = {"figure5": main, "all-methods": others if len(others) > len(main) else others[:0], "tuned": tuned}
        drawn |= {f"{name}-{_name(key, tests)}": figure5(part) for name, part in parts.items() if len(part)}
    sweeps = {
        key: section[[not is_tuned(str(name)) for name in section.index]]
        for key, section in sections(found, "validation").items()
    }
    for dataset in dict.fromkeys(key[:2] for key in sweeps):
        panels = {key[3]: section for key, section in sweeps.items() if key[:2] == dataset and len(section)}
        name = "lam-sweep" if len({key[:2] for key in sweeps}) == 1 else f"lam-sweep-{dataset[0]}-{dataset[1]:g}"
        if figure := lam_sweep(panels):
            drawn[name] = figure
    at_best = cells(found)
    for name in dict.fromkeys(key[0] for key in at_best):
        suffix = "-in-brief" if name == "mnist" else f"-{name}"
        of_network = [section for key, section in at_best.items() if key[:2] == (name, 0)]
        if of_network:
            drawn[f"error-against-density{suffix}"] = error_against_density(of_network, found)
        over_time = at_best.get((name, 0, -0.02))
        if over_time is not None and (figure := density_over_time(over_time)):
            drawn["density-over-time" + ("" if name == "mnist" else f"-{name}")] = figure
    return drawn


def _is_annealed(fields: Mapping[str, Any]) -> bool:
    return fields["method"] == "relaxed" and fields["lam.schedule"] != "constant"


def _name(key: tuple[Any, ...], keys: Mapping[Any, Any]) -> str:
    """By layers, and by data set and density where these differ."""
    dataset, density, _, pruned = key
    parts = [dataset] if len({other[0] for other in keys}) > 1 else []
    parts += [f"density{density:g}"] if len({other[1] for other in keys}) > 1 else []
    return "-".join([*parts, "layers" + ("".join(map(str, pruned)) or "all")])


def _look(run: Run) -> Look:
    return PRESENTATION.look(dotted(run.config))


def _means(run: Run, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and half width of the interval by row, [R] each; a seed that has diverged leaves the mean."""
    found = [interval(row[metric]) for row in run.rows]
    means = np.array([np.nan if value["mean"] is None else value["mean"] for value in found])
    return means, np.array([value["interval95"] or 0.0 for value in found])


def figure5(section: pd.DataFrame) -> Figure:
    """Test error, and below it the weights that are not 0, against time and epochs; bands are 95 % intervals."""
    runs = list(section[RUN])
    errors = [_means(run, "test_error") for run in runs]
    figure = Figure(figsize=(12, max(5.6, 3 + 0.36 * len(runs))), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row", height_ratios=(2, 1))
    shade = 0.15 if len(runs) <= 7 else 0.07  # bands of many runs lie on top of each other
    for run, (means, halves) in zip(runs, errors, strict=True):
        shares = 100 * _means(run, "train_density")[0]
        seconds = np.array([row["seconds"] for row in run.rows]) / len(run.summary["seeds"])
        epochs = np.array([row["epoch"] for row in run.rows])
        colour, dashes = _look(run)
        for (above, below), x in ((panels[:, 0], seconds), (panels[:, 1], epochs)):
            low, high = np.maximum(means - halves, 0.1), means + halves
            above.fill_between(x, low, high, color=colour, alpha=shade, linewidth=0)
            for axes, values in ((above, means), (below, shares)):
                axes.plot(x, values, color=colour, linestyle=dashes, linewidth=1.8)
    (time, of_epochs), (time_below, epochs_below) = panels
    time_below.set_xlabel("training time, s per seed (seeds train together)")
    epochs_below.set_xlabel("epochs")
    time.set_ylabel("test error, %")
    time_below.set_ylabel("weights\nnot 0, %")
    _log_axis(time, max(0.5, 0.85 * np.nanmin([np.nanmin(means) for means, _ in errors])), 100, _TICKS)
    _log_axis(time_below, 0.8 * min(np.nanmin(line.get_ydata()) for line in epochs_below.get_lines()), 125, _SHARES)
    kept, pruned = f"{100 * runs[0].config['density']:g} %", layers(runs[0])
    of = f"layers {', '.join(map(str, pruned))}" if pruned else "all matrices but embeddings"
    figure.suptitle(f"{task(runs[0])}: {kept} of the weights of {of} kept")
    labels = list(PRESENTATION.labels(section))
    order = sorted(range(len(runs)), key=lambda i: -np.nan_to_num(errors[i][0][-1], nan=np.inf))
    lines = of_epochs.get_lines()
    figure.legend(
        [lines[i] for i in order],
        [f"{labels[i]}: {_final(*errors[i])}" for i in order],
        loc="outside right center",
        fontsize=9,
        labelspacing=0.7,
        title="test error after the last epoch",
        title_fontsize=9,
        alignment="left",
    )
    return figure


def _final(means: np.ndarray, halves: np.ndarray) -> str:
    if np.isnan(means[-1]):
        return "diverged"
    return f"{means[-1]:.1f} ± {halves[-1]:.1f}" if halves[-1] else f"{means[-1]:.1f}"


def _log_axis(axes: Axes, low: float, high: float, ticks: Sequence[int]) -> None:
    axes.set_ylim(low, high)  # before the scale, which finds none for lines that are all as high
    axes.set_yscale("log")
    _ticks(axes.yaxis, ticks)


def _ticks(axis: Axis, values: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(values))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def lam_sweep(panels: Mapping[tuple[int, ...], pd.DataFrame]) -> Figure | None:
    """Validation error of the hardened network against lam, by pruned layers; None if nothing varies lam.

    Dots are seeds, as an interval of three says less.
    """
    drawable = {of: series for of, section in panels.items() if (series := _by_lam(section))}
    if not drawable:
        return None
    figure = Figure(figsize=(3.6 + 4.0 * len(drawable), 3.8), layout="constrained")
    all_axes = figure.subplots(1, len(drawable), sharey=True, squeeze=False)[0]
    shown: dict[str, Line2D] = {}
    for axes, (of, series) in zip(all_axes, drawable.items(), strict=True):
        for i, (name, runs) in enumerate(series.items()):
            colour, dashes = _look(runs[0])
            lams = [run.config["lam"]["start"] for run in runs]
            errors = [[error for error in run.final("hardened_error") if error is not None] for run in runs]
            means = [np.mean(values) if values else np.nan for values in errors]
            for lam, values in zip(lams, errors, strict=True):
                axes.plot([lam] * len(values), values, linestyle="", marker=".", markersize=4, color=colour, alpha=0.5)
            style: dict[str, Any] = {"color": colour, "linestyle": dashes, "marker": "osD^v"[i % 5], "markersize": 5}
            (shown[name],) = axes.plot(lams, means, **style)
        axes.set_xscale("log")
        axes.set_xlabel("$\\lambda$ (if annealed: at the start)")
        axes.set_title(f"layers {', '.join(map(str, of))}" if of else "all matrices but embeddings")
    all_axes[0].set_yscale("log")
    _ticks(all_axes[0].yaxis, _TICKS)
    all_axes[0].set_ylabel("validation error after hardening, %")
    figure.legend(list(shown.values()), list(shown), loc="outside right center", fontsize=9)
    return figure


def _by_lam(section: pd.DataFrame) -> dict[str, list[Run]]:
    """The runs whose lam follows a schedule with a start, by the name of their method and p, in the order of lam."""
    series: dict[str, list[Run]] = {}
    for run in section[RUN]:
        fields = dotted(run.config)
        if PRESENTATION.kinds.is_read("lam.start", fields):
            name = method_of(fields).replace(" at the paper's lam", "")
            series.setdefault(f"{name}, p = {p_name(fields['p'])}", []).append(run)
    return {name: sorted(runs, key=lambda run: run.config["lam"]["start"]) for name, runs in series.items()}


def error_against_density(of_network: Sequence[pd.DataFrame], found: pd.DataFrame) -> Figure:
    """The error of the main methods against the share of the whole network's weights that is kept; dense as a band.

    Points are moved aside a little, so that intervals do not cover each other. The annealed relaxed top-k is shown with
    the exponent that validation chose on MNIST, p = 3/2, else with 4/3.
    """
    runs = [run for section in of_network for run in section[RUN]]
    exponents = {run.config["p"] for run in runs if run.config["method"] == "relaxed"}
    p = 1.5 if 1.5 in exponents else 4 / 3
    series: dict[str, dict[float, Run]] = {}
    for section in of_network:
        for kind, run in zip(kinds(section), section[RUN], strict=True):
            annealed = run.config["lam"]["schedule"] == "geometric" and run.config["p"] == p
            if run.config["method"] in ("hard", "gradual", "movement") or (
                run.config["method"] == "relaxed" and annealed
            ):
                series.setdefault(kind, {})[run.config["density"]] = run
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    axes = figure.subplots()
    shown: dict[str, Any] = {}
    for run in dense_at_best(of_network[0], found)[RUN]:
        error = interval(run.final("test_error"))
        half = error["interval95"] or 0.0
        axes.axhspan(error["mean"] - half, error["mean"] + half, color=GREY, alpha=0.2, linewidth=0)
        shown["dense"] = axes.axhline(error["mean"], color=GREY, linewidth=1.5)
    for i, (kind, by_density) in enumerate(series.items()):
        densities = sorted(by_density)
        errors = [interval(by_density[density].final("hardened_error")) for density in densities]
        colour, dashes = _look(by_density[densities[0]])
        shown[kind] = axes.errorbar(
            [100 * density * 1.02 ** (i - len(series) / 2) for density in densities],
            [np.nan if error["mean"] is None else error["mean"] for error in errors],
            [error["interval95"] or 0.0 for error in errors],
            color=colour,
            linestyle=dashes,
            marker="osD^v"[i % 5],
            markersize=5,
            capsize=2,
            linewidth=1.5,
        )
    axes.set_xscale("log")
    _ticks(axes.xaxis, sorted({100 * run.config["density"] for run in runs}))
    low, high = axes.get_ylim()
    if sum(low <= tick <= high for tick in _TICKS) > 1:  # else errors are all about as large, and no tick among them
        axes.set_yscale("log")
        _ticks(axes.yaxis, _TICKS)
    axes.set_xlabel("weights kept, %")
    axes.set_ylabel("test error, %")
    axes.legend(list(shown.values()), list(shown), loc="upper right", fontsize=9)
    return figure


def density_over_time(section: pd.DataFrame) -> Figure | None:
    """A panel for each run: the share of weights that are not zero, by layer and epoch, as the mean over seeds.

    The axis is linear below 0.1 %, so that a layer without weights is seen, too. None if there are more layers than
    lines that can be told apart.
    """
    runs, names = list(section[RUN]), kinds(section)
    if any(len(run.rows[0]["train_density_per_layer"]) > len(_LAYERS) for run in runs):
        return None
    columns = min(len(runs), 4)
    rows = -(-len(runs) // columns)
    figure = Figure(figsize=(1.5 + 2.6 * columns, 0.6 + 2.3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, run, name in zip(panels, runs, names, strict=False):
        epochs = [row["epoch"] for row in run.rows]
        for layer, colour in zip(run.rows[0]["train_density_per_layer"], _LAYERS, strict=False):
            means = [interval(row["train_density_per_layer"][layer])["mean"] for row in run.rows]
            shares = [np.nan if mean is None else 100 * mean for mean in means]
            axes.plot(epochs, shares, color=colour, label=f"layer {layer}", linewidth=1.5)
        axes.set_yscale("symlog", linthresh=0.1)
        axes.set_ylim(bottom=-0.01)
        _ticks(axes.yaxis, (0, 0.1, 1, 10, 100))
        axes.set_title(textwrap.fill(name, 30), fontsize=9)
    for axes in panels[len(runs) :]:
        axes.set_visible(False)
    for axes in panels[max(len(runs) - columns, 0) : len(runs)]:  # below which there is none
        axes.tick_params(labelbottom=True)
    figure.supxlabel("epochs")
    figure.supylabel("weights that are not zero, %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=9)
    return figure
