"""The figures of the fine-tuning experiment: `python -m experiments.cifar100_vit.report.figures DIR`.

Reads the workdirs below DIR and writes PNG and SVG files to DIR/figures: the paper's Figure 6, the
top-k accuracy against k for each loss; where there are runs at the paper's learning rates besides, the same of these;
and where learning rates were chosen, the accuracy against them. The same data give the same bytes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from experiments.cifar100_vit.report import naming
from experiments.core import console
from experiments.core.record.summary import interval
from experiments.core.report.command import drawable, figures_of
from experiments.core.report.markdown import number
from experiments.core.report.paired import difference
from experiments.core.report.results import Run
from experiments.core.report.style import BLUE, STYLE, save

_MANY = 6  # losses, of which the labels are set smaller
_HANDLE = 4  # of the legend: shorter lines would hide their dashes behind the marker


def make(directory: Path) -> list[Path]:
    """Draws what the runs below `directory` allow; returns the files written."""
    runs = drawable(naming.load(directory))
    # Some losses of others take the axis for themselves; the table has them.
    final = [run for run in naming.final(runs) if naming.is_everywhere(run)]
    tried = naming.by_loss(filter(naming.is_tried, runs))
    first = min(map(naming.circumstances, tried), default=None)
    tried = [run for run in tried if naming.circumstances(run) == first and not naming.decay(run)]
    own = naming.by_circumstances(run for run in final if not naming.is_at_paper_rate(run))
    shown = {f"figure6{_suffix(runs[0]) if number else ''}": runs for number, runs in enumerate(own)}
    if paper := [run for run in final if naming.is_at_paper_rate(run)]:
        shown["figure6-paper-rates"] = paper
    written = []
    with mpl.rc_context(STYLE):
        for name, compared in shown.items():
            written += save(figure6(compared), directory / "figures", name)
        if len(set(map(_rate, tried))) > 1:
            written += save(by_rate(tried), directory / "figures", "accuracy-by-rate")
    return written


def _suffix(run: Run) -> str:
    images, steps = naming.circumstances(run)
    return f"-{steps}-steps" + (f"-{images}-images" if images else "")


def by_rate(runs: Sequence[Run]) -> Figure:
    """Accuracy on validation against the learning rate, a curve for each loss: which is ahead depends on the rate.

    A loss that was tried with several lam is shown at the one with which it is best at any rate. What is far below
    cross-entropy at any rate is cut off.
    """
    losses: dict[str, list[Run]] = {}
    for run in runs:
        losses.setdefault(naming.loss(run), []).append(run)
    curves = dict(_at_best_lam(name, members) for name, members in losses.items())
    figure = _figure(-(-len(curves) // 3))
    for axes, k in zip(figure.subplots(1, 2), (1, 5), strict=True):
        for label, members in curves.items():
            ordered = sorted(members, key=_rate)
            rates = [_rate(run) for run in ordered]
            means, _ = _band([_valid(run, k) for run in ordered])
            colour, line = naming.look(members[0])
            axes.plot(rates, means, line, color=colour, marker="o", markersize=3.5, linewidth=1.5, label=label)
        least = [mean for run in runs if naming.is_cross_entropy(run) for mean in _band([_valid(run, k)])[0]]
        if least:
            axes.set_ylim(bottom=min(least) - 2)
        axes.set_xscale("log")
        axes.set_xlabel("learning rate")
        axes.set_ylabel(f"top-{k} accuracy on validation, %")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, handlelength=_HANDLE)
    return figure


def _at_best_lam(name: str, runs: Sequence[Run]) -> tuple[str, list[Run]]:
    """Runs of a loss at one lam, and what that curve is called."""
    lams = {run.config["loss"]["lam"] for run in runs}
    best = min(runs, key=_mean_error).config["loss"]["lam"]
    return name + f", lam = {number(best)}" * (len(lams) > 1), [
        run for run in runs if run.config["loss"]["lam"] == best
    ]


def _mean_error(run: Run) -> float:
    """By which hyper-parameters are chosen; one that diverged is worst."""
    return float(np.mean([np.inf if error is None else error for error in run.final("mean_topk_error")]))


def figure6(runs: Sequence[Run]) -> Figure:
    """Top-k accuracy against k; beside it the differences to cross-entropy, paired by seed, with intervals."""
    figure = _figure(-(-len(runs) // 2))
    accuracy, paired = figure.subplots(1, 2)
    for run in runs:
        ks = sorted(run.summary["final"]["test_accuracy"], key=int)
        colour, line = naming.look(run)
        x = np.array([int(k) for k in ks])
        means, halves = _band([interval(run.final(f"test_accuracy/{k}")) for k in ks])
        label = f"{naming.loss(run)} ({naming.setting(run)})"
        accuracy.plot(x, means, line, color=colour, marker="o", markersize=3.5, linewidth=1.5, label=label)
        accuracy.fill_between(x, means - halves, means + halves, color=colour, alpha=0.12, linewidth=0)
        if (reference := naming.reference(run, runs)) is not None:
            means, halves = _band([difference(run, reference, f"test_accuracy/{k}") for k in ks])
            paired.plot(x, means, line, color=colour, marker="o", markersize=3.5, linewidth=1.5)
            paired.fill_between(x, means - halves, means + halves, color=colour, alpha=0.12, linewidth=0)
    paired.axhline(0, color=BLUE, linewidth=1.5)  # of cross-entropy
    accuracy.set_ylabel("test accuracy, %")
    paired.set_ylabel("minus that of cross-entropy, points")
    for axes in (accuracy, paired):
        axes.set_xlabel("k of the top-k accuracy")
        axes.xaxis.set_major_locator(MultipleLocator(1))
    if (stand_in := next(filter(naming.is_stand_in, runs), None)) is not None:
        figure.suptitle(f"A stand-in for ViT-B/16 ({naming.trained(stand_in)})", fontsize=10)
    size = 9 if len(runs) <= _MANY else 8
    handles, labels = accuracy.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=size, handlelength=_HANDLE)
    return figure


def _figure(rows: int) -> Figure:
    """Two axes side by side above a legend of so many rows."""
    return Figure(figsize=(11, 3.6 + 0.2 * rows), layout="constrained")


def _valid(run: Run, k: int) -> dict[str, Any]:
    return interval(run.final(f"valid_accuracy/{k}"))


def _rate(run: Run) -> float:
    return run.config["optimizer"]["learning_rate"]


def _band(values: Sequence[dict]) -> tuple[np.ndarray, np.ndarray]:
    means = np.array([np.nan if value["mean"] is None else value["mean"] for value in values])
    return means, np.array([value["interval95"] or 0.0 for value in values])


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    return figures_of("experiments.cifar100_vit.report.figures", __doc__, make, arguments)


if __name__ == "__main__":
    console.run(main)
