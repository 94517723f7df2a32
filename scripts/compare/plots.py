"""Every plot of the page as PNG and SVG, for papers and slides."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.core.report.identity import is_bookkeeping
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, STYLE, save
from scripts.compare.contents import Reported, metrics_of
from scripts.compare.groups import Group, varying
from scripts.compare.series import Curve

_COLOURS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, GREY)
_DASHES = ("-", "--", ":", "-.")
_LEGEND = 30  # entries; more are told apart in the page only


def make(groups: Sequence[Group], directory: Path, reported: Sequence[Reported] = ()) -> list[Path]:
    """Learning curves of each metric, and final values against each field that is swept; returns the files written.

    Those of an earlier comparison in the directory, which are none of this one, are removed.
    """
    written: list[Path] = []
    metrics = [entry["name"] for entry in metrics_of(groups)]
    with mpl.rc_context(STYLE):
        for metric in metrics:
            if members := [group for group in groups if not np.isnan(_values(group, metric)).all()]:
                figure = _curves(members, metric, [number for number in reported if number.metric == metric])
                written += save(figure, directory, f"curves-{_file(metric)}", dpi=100)
        for field in _swept(groups):
            written += save(_scatter(groups, field), directory, f"scatter-{_file(field)}", dpi=100)
    for path in directory.glob("*.*"):
        if path.name.startswith(("curves-", "scatter-")) and path.suffix in (".png", ".svg") and path not in written:
            path.unlink()
    return written


def _values(group: Group, metric: str) -> np.ndarray:
    series = group.series
    return series.metrics.get(metric, series.of_the_run.get(metric, np.array(np.nan)))


def _file(name: str) -> str:
    return name.replace("/", "-")


def _curves(groups: Sequence[Group], metric: str, reported: Sequence[Reported]) -> Figure:
    """Against steps and against time."""
    few = len(groups) <= _LEGEND
    figure = Figure(figsize=(11, 4 + (0.22 * len(groups) if few else 0)), layout="constrained")
    steps, time = figure.subplots(1, 2, sharey=True)
    mixed = len({group.own for group in groups}) > 1
    for i, group in enumerate(groups):
        curve = Curve.of(_values(group, metric))
        width = 2.6 if mixed and group.own else 1.3
        look = {"color": _COLOURS[i % 7], "linestyle": _DASHES[i // 7 % 4], "linewidth": width}
        for axes, x in ((steps, group.series.step), (time, group.series.seconds)):
            axes.plot(x, curve.mean, label=group.label, marker="." if len(x) < 3 else None, **look)
            if few:
                low, high = curve.mean - curve.half, curve.mean + curve.half
                axes.fill_between(x, low, high, color=look["color"], alpha=0.12, linewidth=0)
    for number in reported:
        if any(group.experiment == number.experiment for group in groups):
            for axes in (steps, time):
                axes.axhline(
                    number.value,
                    color=BLACK,
                    linewidth=1,
                    dashes=(8, 4),
                    label=f"the paper reports {number.value:g} ({number.label})",
                )
    steps.set_ylabel(metric)
    steps.set_xlabel("step")
    time.set_xlabel("training time, s per seed")
    if few:
        _legend(figure, steps)
    else:
        figure.suptitle(f"{len(groups)} groups: index.html names them", fontsize=10)
    return figure


def _legend(figure: Figure, axes: Axes) -> None:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=1, fontsize=8)


def _swept(groups: Sequence[Group]) -> list[str]:
    """The fields with several numbers."""
    fields = [name for name in varying([group.config for group in groups]) if not is_bookkeeping(name)]
    return [name for name in fields if len({x for x, _ in _points(groups, name)}) > 1]


def _points(groups: Sequence[Group], field: str) -> list[tuple[float, Group]]:
    found = ((group.config.get(field), group) for group in groups)
    return [(x, group) for x, group in found if isinstance(x, (int, float)) and not isinstance(x, bool)]


def _scatter(groups: Sequence[Group], field: str) -> Figure:
    """A panel for each metric that is measured per seed."""
    points = _points(groups, field)
    metrics = [entry["name"] for entry in metrics_of([group for _, group in points]) if entry["per_seed"]]
    columns = min(3, len(metrics))
    rows = -(-len(metrics) // columns)
    figure = Figure(figsize=(3.8 * columns, 2.9 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    positive = all(x > 0 for x, _ in points) and max(x for x, _ in points) >= 100 * min(x for x, _ in points)
    for axes, metric in zip(panels, metrics, strict=False):
        members = [(x, group) for x, group in points if metric in group.series.metrics]
        ends = [Curve.of(group.series.final[metric][None]) for _, group in members]
        means, halves = np.array([end.mean[0] for end in ends]), np.array([end.half[0] for end in ends])
        look = {"fmt": "o", "markersize": 4, "color": BLUE, "alpha": 0.7}
        axes.errorbar([x for x, _ in members], means, yerr=np.nan_to_num(halves), **look)
        axes.set_xlabel(field)
        axes.set_ylabel(metric)
        if positive:
            axes.set_xscale("log")
    for axes in list(figure.axes)[len(metrics) :]:
        axes.set_visible(False)
    return figure
