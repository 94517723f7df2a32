"""The figures of the V-MoE experiment: `python -m experiments.vmoe.report.figures DIR`.

Reads the workdirs below DIR and writes PNG and SVG files to DIR/figures; the same data give the same bytes.

    figure7   the paper's: precision-at-1 in the course of training, with the end enlarged; where some train for longer,
              figure7_2000 of those that take 2000 steps
    routing   the entropy of the gates and the stability of a token's experts in the course of training
    experts   which patches experts work on, drawn on images, where runs and DIR/pictures.npz have kept what it takes
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.core import console
from experiments.core.report.command import drawable, figures_of
from experiments.core.report.course import course, draw
from experiments.core.report.results import Run
from experiments.core.report.style import BLACK, GREEN, ORANGE, PURPLE, RED, SKY, STYLE, Look, save
from experiments.vmoe.report import naming, pictures

_METRIC = "test_precision_at_1"
_END = 0.6  # of the steps: where the enlargement begins
_LEGEND = 156  # letters of two columns that a figure has room for at the usual size
_FREE = (RED, GREEN, PURPLE, ORANGE, BLACK, SKY)


def make(directory: Path) -> list[Path]:
    """Draws what the runs below `directory` allow; returns the files written."""
    runs = drawable(naming.load(directory))
    final = [run for run in naming.final(runs) if run.rows]  # seeds of several workdirs have no rows together
    if not final:
        return []
    target, written = directory / "figures", []
    by_length = [list(alike) for _, alike in itertools.groupby(final, lambda run: run.config["steps"])]
    shortest = by_length[0]
    with mpl.rc_context(STYLE):
        for runs in by_length:
            steps = "" if runs is shortest else f"_{runs[0].config['steps']}"
            written += save(figure7(runs), target, f"figure7{steps}")
        if any(_has_stability(run) for run in shortest):
            written += save(routing(shortest), target, "routing")
        seen, probed = pictures.read(directory), [run for run in shortest if run.probe]
        if seen is not None and probed:
            written += save(pictures.experts(probed, seen), target, "experts", dpi=200)
    return written


def figure7(runs: Sequence[Run]) -> Figure:
    """Precision against steps, mean and interval over the seeds; on the right the last part of training."""
    figure = Figure(figsize=(11, 4.6 + 0.15 * max(0, len(runs) - 8)), layout="constrained")
    whole, end = figure.subplots(1, 2)
    low, high = [], []
    for run, look in _looks(runs):
        precision = course(run, lambda row: row[_METRIC])
        steps, means, halves = precision
        late = steps >= _END * steps[-1]
        low.append(np.nanmin((means - halves)[late], initial=np.inf))
        high.append(np.nanmax((means + halves)[late], initial=-np.inf))
        final = "diverged" if np.isnan(means[-1]) else f"{means[-1]:.2f} ± {halves[-1]:.2f} %"
        for axes in (whole, end):
            draw(axes, precision, look, f"{naming.router(run)}: {final}")
    last = max(run.rows[-1]["step"] for run in runs)
    end.set_xlim(_END * last, last)
    if np.isfinite(min(low)) and np.isfinite(max(high)):
        margin = 0.05 * (max(high) - min(low)) or 1.0
        end.set_ylim(min(low) - margin, max(high) + margin)
    whole.set_ylabel("test precision-at-1, %")
    return _finished(figure, (whole, end), runs)


def routing(runs: Sequence[Run]) -> Figure:
    """What routers do against steps, mean over the layers of experts, and mean and interval over the seeds."""
    figure = Figure(figsize=(11, 4.6 + 0.15 * max(0, len(runs) - 8)), layout="constrained")
    entropy, stability = figure.subplots(1, 2)
    for run, look in _looks(runs):
        if _has_stability(run):
            label = naming.router(run)
            of_gates = course(run, lambda row: naming.over_layers(row["test_router"], "entropy"))
            draw(entropy, of_gates, look, label)
            of_experts = course(run, lambda row: naming.over_layers(row["test_stability"]))
            draw(stability, of_experts, look, label)
    entropy.set_ylabel("entropy of the gates of a token, nats")
    stability.set_ylabel("tokens of experts alike in two rows, %")
    return _finished(figure, (entropy, stability), runs)


def _has_stability(run: Run) -> bool:
    return bool(run.rows[-1].get("test_stability"))


def _looks(runs: Sequence[Run]) -> Iterator[tuple[Run, Look]]:
    """Each with its own, or the next colour that is free; once these are used up, dashed and dotted."""
    free = iter([(colour, dashes) for dashes in ("-", "--", ":") for colour in _FREE])
    for run in runs:
        look = naming.kind(run).look
        yield run, look(run.config["router"]) if look else next(free, (BLACK, "-."))


def _finished(figure: Figure, panels: Sequence[Axes], runs: Sequence[Run]) -> Figure:
    for axes in panels:
        axes.set_xlabel("steps")
    if any(naming.is_stand_in(run) for run in runs):
        title = f"A stand-in for V-MoE S/32 on JFT-300M (small network, {naming.examples(runs[0])})"
        figure.suptitle(title, fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    half = -(-len(labels) // 2)
    width = sum(max(map(len, column), default=0) for column in (labels[:half], labels[half:]))
    size = 9 * min(1.0, _LEGEND / width)
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=size)
    return figure


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    return figures_of("experiments.vmoe.report.figures", __doc__, make, arguments)


if __name__ == "__main__":
    console.run(main)
