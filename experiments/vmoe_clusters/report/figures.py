"""The figures of the task: `python -m experiments.vmoe_clusters.report.figures DIR`.

Reads the workdirs below DIR and writes PNG and SVG files to DIR/figures; the same data give the same bytes.

    excess     the loss over that of the best assignment, and over that of the hard router, against the noise
    recovery   how much of the best assignment is found in the course of training
"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.core import console
from experiments.core.report.command import drawable, figures_of
from experiments.core.report.course import course, draw
from experiments.core.report.markdown import Numbers
from experiments.core.report.paired import difference
from experiments.core.report.results import Run
from experiments.core.report.style import GREY, STYLE, save
from experiments.vmoe_clusters import kinds
from experiments.vmoe_clusters.kinds import BEST
from experiments.vmoe_clusters.report import naming

_APART = 0.003  # routers at one noise


def make(directory: Path) -> list[Path]:
    """Draws what the runs below `directory` allow; returns the files written."""
    final = naming.of_split(drawable(naming.load(directory)), "test")
    written: list[Path] = []
    with mpl.rc_context(STYLE):
        if any(naming.reference(run, BEST, final) for run in final):
            written += save(excess(final), directory / "figures", "excess")
        if final:
            written += save(recovery(final), directory / "figures", "recovery")
    return written


def excess(runs: Sequence[Run]) -> Figure:
    """Loss minus that with the best assignment, and minus that with the hard router, by seed, against the noise.

    Means and intervals, a line for each router. Runs of other lengths than the shortest stand alone, as hollow points.
    """
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, name, of_name in zip(panels, (BEST, "hard"), ("best assignment", "hard router"), strict=True):
        _draw_differences(axes, runs, name)
        axes.set_ylabel(f"loss minus that with the {of_name}, %")
        axes.set_xlabel("noise of the tokens")
    shortest, *longer = (f"{steps} steps" for steps in sorted({run.config["steps"] for run in runs}))
    figure.suptitle(f"after {shortest}" + (f"; hollow: after {', '.join(longer)}" if longer else ""), fontsize=11)
    _legend(figure, columns=2)
    return figure


def _draw_differences(axes: Axes, runs: Sequence[Run], name: str) -> None:
    """Of the loss to that with the router of a name; side by side, lest intervals hide each other."""
    shortest = min(run.config["steps"] for run in runs)
    pairs = [(run, naming.reference(run, name, runs)) for run in runs if run.config["router"]["name"] != BEST]
    held = [(run, difference(run, other, "test_loss")) for run, other in pairs if other]
    for place, router in enumerate(kinds.NAMES[1:]):
        found = [pair for pair in held if pair[0].config["router"]["name"] == router and pair[1]["mean"] is not None]
        for alone in (False, True):
            points = [pair for pair in found if (pair[0].config["steps"] > shortest) == alone]
            if points:
                _draw_points(axes, points, _APART * (place - 2), alone=alone)
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    noises = sorted({naming.noise(run) for run in runs})
    axes.set_xticks(noises)
    axes.set_xlim(noises[0] - 0.04, noises[-1] + 0.04)


def _draw_points(axes: Axes, points: Sequence[tuple[Run, Numbers]], shift: float, *, alone: bool) -> None:
    """Of one router."""
    run = points[0][0]
    colour, dashes = kinds.look(run.config["router"])
    axes.errorbar(
        [naming.noise(run) + shift for run, _ in points],
        [value["mean"] for _, value in points],
        [value["interval95"] or 0.0 for _, value in points],
        color=colour,
        linestyle="none" if alone else dashes,
        marker="o",
        markersize=4,
        markerfacecolor="white" if alone else colour,
        capsize=2,
        linewidth=1.4,
        label=None if alone else naming.router(run),
    )


def recovery(runs: Sequence[Run]) -> Figure:
    """Share of the best assignment found, mean and interval against steps: a panel for each noise and length."""
    panels: dict[tuple[int, float], list[Run]] = {}
    for run in runs:
        panels.setdefault(naming.circumstances(run), []).append(run)
    figure = Figure(figsize=(max(7.5, 2.6 + 2.4 * len(panels)), 4.8), layout="constrained")
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, ((steps, noise), shown) in zip(row, panels.items(), strict=True):
        for run in (run for run in shown if run.config["router"]["name"] != BEST):
            found = course(run, lambda row: row["test_recovery"])
            draw(axes, found, kinds.look(run.config["router"]), naming.router(run))
        # From the start, when no seed has diverged.
        reachable = np.mean(shown[0].rows[0]["test_reachable"])
        axes.axhline(reachable, color=GREY, linestyle=":", linewidth=1.2, label="the true centres, hard top-k")
        axes.set_title(f"noise {noise:g}, {steps} steps")
        axes.set_xlabel("steps")
    row[0].set_ylabel("recovered of the best assignment, %")
    _legend(figure, columns=2 if len(panels) > 2 else 1)
    return figure


def _legend(figure: Figure, columns: int) -> None:
    """Below, of what is drawn in any panel."""
    drawn = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes]
    handles = {label: handle for pairs in drawn for handle, label in pairs}
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, fontsize=9)


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    return figures_of("experiments.vmoe_clusters.report.figures", __doc__, make, arguments)


if __name__ == "__main__":
    console.run(main)
