"""The figure of the V-MoE experiment: `python -m experiments.vmoe.report.figures DIR`.

Reads the workdirs below DIR and writes PNG and SVG files to DIR/figures: the paper's Figure 7,
precision-at-1 in the course of training, with the end enlarged. The same data give the same bytes.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from experiments.core.record.summary import interval
from experiments.core.report.command import drawable, figures_of
from experiments.core.report.results import Run
from experiments.core.report.style import BLACK, GREEN, ORANGE, PURPLE, RED, STYLE, save
from experiments.vmoe.report import naming

_METRIC = "test_precision_at_1"
_END = 0.6  # of the steps: where the enlargement begins
_FREE = (RED, GREEN, PURPLE, ORANGE, BLACK)


def make(directory: Path) -> list[Path]:
    """Draws what the runs below `directory` allow; returns the files written."""
    runs = drawable(naming.load(directory))
    final = [run for run in naming.final(runs) if run.rows]  # seeds of several workdirs have no rows together
    if not final:
        return []
    with mpl.rc_context(STYLE):
        return save(figure7(final), directory / "figures", "figure7")


def figure7(runs: Sequence[Run]) -> Figure:
    """Precision against steps, mean and interval over the seeds; on the right the last part of training."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    whole, end = figure.subplots(1, 2)
    free = iter(_FREE)
    low, high = [], []
    for run in runs:
        look = naming.kind(run).look
        colour, dashes = look(run.config["router"]) if look else (next(free, BLACK), "-")
        steps = np.array([row["step"] for row in run.rows])
        values = [interval(row[_METRIC]) for row in run.rows]
        means = np.array([np.nan if value["mean"] is None else value["mean"] for value in values])
        halves = np.array([value["interval95"] or 0.0 for value in values])
        late = steps >= _END * steps[-1]
        low.append(np.nanmin((means - halves)[late], initial=np.inf))
        high.append(np.nanmax((means + halves)[late], initial=-np.inf))
        final = "diverged" if np.isnan(means[-1]) else f"{means[-1]:.2f} ± {halves[-1]:.2f} %"
        for axes in (whole, end):
            axes.plot(
                steps, means, color=colour, linestyle=dashes, linewidth=1.6, label=f"{naming.router(run)}: {final}"
            )
            axes.fill_between(steps, means - halves, means + halves, color=colour, alpha=0.12, linewidth=0)
    last = max(run.rows[-1]["step"] for run in runs)
    end.set_xlim(_END * last, last)
    if np.isfinite(min(low)) and np.isfinite(max(high)):
        margin = 0.05 * (max(high) - min(low)) or 1.0
        end.set_ylim(min(low) - margin, max(high) + margin)
    whole.set_ylabel("test precision-at-1, %")
    for axes in (whole, end):
        axes.set_xlabel("steps")
    if any(naming.is_stand_in(run) for run in runs):
        figure.suptitle(
            f"A stand-in for V-MoE S/32 on JFT-300M (small network, {runs[0].config['dataset']})", fontsize=10
        )
    figure.legend(*whole.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    return figure


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    return figures_of("experiments.vmoe.report.figures", __doc__, make, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
