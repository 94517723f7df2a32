"""The figures of the task: `python -m experiments.vmoe_clusters.report.figures DIR`.

Reads the workdirs below DIR and writes PNG and SVG files to DIR/figures: `excess`, the loss over that of the best
assignment against the noise, and `recovery`, how much of that assignment is found in the course of training. The same
data give the same bytes.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from experiments.core.record.summary import interval
from experiments.core.report.command import drawable, figures_of
from experiments.core.report.paired import difference
from experiments.core.report.results import Run
from experiments.core.report.style import GREY, STYLE, save
from experiments.vmoe_clusters import kinds
from experiments.vmoe_clusters.kinds import BEST
from experiments.vmoe_clusters.report import naming


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
    """Loss minus that with the best assignment by seed, mean and interval against the noise: a line for each router."""
    figure = Figure(figsize=(7.5, 4.4), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(kinds.NAMES[1:]):
        pairs = [(run, naming.reference(run, BEST, runs)) for run in runs if run.config["router"]["name"] == name]
        held = [(run, difference(run, best, "test_loss")) for run, best in pairs if best]
        held = [(run, value) for run, value in held if value["mean"] is not None]
        if not held:
            continue
        colour, dashes = kinds.look(held[0][0].config["router"])
        # Side by side, lest intervals hide each other.
        noises = np.array([naming.noise(run) for run, _ in held]) + 0.003 * (place - 2)
        means, halves = ([value[key] or 0.0 for _, value in held] for key in ("mean", "interval95"))
        label = naming.router(held[0][0])
        axes.errorbar(noises, means, halves, color=colour, linestyle=dashes, capsize=2, linewidth=1.4, label=label)
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    axes.set_xlabel("noise of the tokens")
    axes.set_ylabel("loss over the best assignment, % of the variance")
    figure.legend(loc="outside lower center", fontsize=9)
    return figure


def recovery(runs: Sequence[Run]) -> Figure:
    """Share of the best assignment that is found, mean and interval against steps: a panel for each noise."""
    noises = sorted({naming.noise(run) for run in runs})
    figure = Figure(figsize=(2.6 + 2.4 * len(noises), 4.6), layout="constrained")
    panels = figure.subplots(1, len(noises), sharey=True, squeeze=False)[0]
    for axes, noise in zip(panels, noises, strict=True):
        for run in (run for run in runs if naming.noise(run) == noise and run.config["router"]["name"] != BEST):
            colour, dashes = kinds.look(run.config["router"])
            values = [interval(row["test_recovery"]) for row in run.rows]
            steps = np.array([row["step"] for row in run.rows])
            means = np.array([np.nan if value["mean"] is None else value["mean"] for value in values])
            halves = np.array([value["interval95"] or 0.0 for value in values])
            axes.plot(steps, means, color=colour, linestyle=dashes, linewidth=1.4, label=naming.router(run))
            axes.fill_between(steps, means - halves, means + halves, color=colour, alpha=0.12, linewidth=0)
        # From the start, when no seed has diverged.
        reachable = next(run for run in runs if naming.noise(run) == noise).rows[0]["test_reachable"]
        axes.axhline(np.mean(reachable), color=GREY, linestyle=":", linewidth=1.2, label="the true centres, hard top-k")
        axes.set_title(f"noise {noise:g}")
        axes.set_xlabel("steps")
    panels[0].set_ylabel("recovered of the best assignment, %")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    return figure


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    return figures_of("experiments.vmoe_clusters.report.figures", __doc__, make, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
