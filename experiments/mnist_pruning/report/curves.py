"""Figure 5: test error in the course of training, and the weights that are not 0, against time and epochs."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from experiments.core.record.summary import interval
from experiments.core.report.results import Run
from experiments.core.report.style import Look
from experiments.mnist_pruning.report import naming

TICKS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 90)
_SHARES = (1, 2, 5, 10, 20, 50, 100)
_LOG_TIME_FROM = 6.0  # how many times longer the slowest run is than the fastest


@dataclasses.dataclass(frozen=True)
class Curve:
    """Mean and band over the seeds of one run, one value per epoch from 0."""

    epochs: np.ndarray
    seconds: np.ndarray  # per seed
    mean: np.ndarray
    half: np.ndarray
    density: np.ndarray  # %, as the mean over seeds


def curve(run: Run) -> Curve:
    """The test error and the density of a run; a seed that has diverged leaves the mean."""
    intervals = [interval(row["test_error"]) for row in run.rows]
    number = lambda value: np.nan if value is None else value  # noqa: E731
    return Curve(
        epochs=np.array([row["epoch"] for row in run.rows]),
        seconds=np.array([row["seconds"] for row in run.rows]) / len(run.summary["seeds"]),
        mean=np.array([number(entry["mean"]) for entry in intervals]),
        half=np.array([entry["interval95"] or 0.0 for entry in intervals]),
        density=100 * np.array([number(interval(row["train_density"])["mean"]) for row in run.rows]),
    )


def figure5(runs: Sequence[Run]) -> Figure:
    """Errors above, densities below, each against time and epochs; the legend gives the final error of each run."""
    curves = [(run, curve(run)) for run in runs]
    figure = Figure(figsize=(11, max(5.6, 3 + 0.36 * len(runs))), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row", height_ratios=(2, 1))
    (time, epochs), (time_below, epochs_below) = panels
    lengths = [drawn.seconds[-1] for _, drawn in curves]
    log_time = bool(max(lengths) > _LOG_TIME_FROM * min(lengths))
    shade = 0.15 if len(runs) <= 7 else 0.07  # bands of many runs lie on top of each other
    for run, drawn in curves:
        look = naming.look(run)
        # Time 0 has no place on a logarithmic axis.
        for (above, below), x, start in ((panels[:, 0], drawn.seconds, int(log_time)), (panels[:, 1], drawn.epochs, 0)):
            _draw(above, x[start:], drawn.mean[start:], drawn.half[start:], look, shade)
            below.plot(x[start:], drawn.density[start:], color=look[0], linestyle=look[1], linewidth=1.8)
    if log_time:
        time.set_xscale("log")
        time.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    time_below.set_xlabel("training time, s per seed (seeds train together)")
    epochs_below.set_xlabel("epochs")
    time.set_ylabel("test error, %")
    time_below.set_ylabel("weights\nnot 0, %")
    lowest = np.nanmin([np.nanmin(drawn.mean) for _, drawn in curves])
    _log_axis(time, max(0.5, 0.85 * lowest), 100, TICKS)
    _log_axis(time_below, 0.8 * min(np.nanmin(drawn.density) for _, drawn in curves), 125, _SHARES)
    first = runs[0]
    layers = naming.of_layers(naming.layers(first))
    figure.suptitle(f"{naming.task(first)}: {100 * first.config['density']:g} % of the weights of {layers} kept")
    order = sorted(range(len(curves)), key=lambda i: -np.nan_to_num(curves[i][1].mean[-1], nan=np.inf))
    lines = epochs.get_lines()
    figure.legend(
        [lines[i] for i in order],
        [f"{naming.legend(runs[i])}: {_final(curves[i][1])}" for i in order],
        loc="outside right center",
        fontsize=9,
        labelspacing=0.7,
        title="test error after the last epoch",
        title_fontsize=9,
        alignment="left",
    )
    return figure


def _draw(axes: Axes, x: np.ndarray, mean: np.ndarray, half: np.ndarray, look: Look, shade: float) -> None:
    colour, dashes = look
    axes.fill_between(x, np.maximum(mean - half, 0.1), mean + half, color=colour, alpha=shade, linewidth=0)
    axes.plot(x, mean, color=colour, linestyle=dashes, linewidth=1.8)


def _log_axis(axes: Axes, low: float, high: float, ticks: Sequence[int]) -> None:
    axes.set_ylim(low, high)  # before the scale, which finds none for lines that are all as high
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _final(drawn: Curve) -> str:
    if np.isnan(drawn.mean[-1]):
        return "diverged"
    return f"{drawn.mean[-1]:.1f} ± {drawn.half[-1]:.1f}" if drawn.half[-1] else f"{drawn.mean[-1]:.1f}"
