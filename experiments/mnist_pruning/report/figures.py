"""The figures of the pruning experiment: `python -m experiments.mnist_pruning.report.figures DIR`.

Reads the workdirs below DIR and writes PNG and SVG files to DIR/figures: the paper's Figure 5 (test
error against training time and epochs) for each set of pruned layers, the same with every method,
the validation error against lam, and every method at its best: the error against density, and the
density of layers over time, which pixels the first layer is left with, and how lam decides it. The
same data give the same bytes.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from experiments.core import console
from experiments.core.report.command import drawable, figures_of
from experiments.core.report.results import Run
from experiments.core.report.style import STYLE, save
from experiments.mnist_pruning import relaxed
from experiments.mnist_pruning.report import best, naming, pictures, why
from experiments.mnist_pruning.report.curves import figure5
from experiments.mnist_pruning.report.densities import density_over_time, error_against_density, in_brief
from experiments.mnist_pruning.report.lam_sweep import lam_sweep

OVER_TIME = ("network", 0.02)  # budget and density whose layers are shown over time


def make(directory: Path) -> list[Path]:
    """Draws what the runs below `directory` allow; returns the files written."""
    runs = drawable(naming.load(directory))
    written = []
    with mpl.rc_context(STYLE):
        for name, figure in (draw(runs) | _pictures(pictures.load(runs))).items():
            written += save(figure, directory / "figures", name)
    return written


def draw(runs: Sequence[Run]) -> dict[str, Figure]:
    """The figures by name."""
    drawn = {}
    tests = naming.group(runs, "test")
    for key, members in tests.items():
        name = _name(key, tests)
        tuned = [run for run in members if naming.is_tuned(run)]
        members = [run for run in members if not naming.is_tuned(run)]
        main = [run for run in members if run.config["method"] in ("dense", "hard") or relaxed.is_papers(run.config)]
        main += [run for run in members if relaxed.is_annealed(run.config)]
        if main:
            drawn[f"figure5-{name}"] = figure5(main)
        if len(members) > len(main):
            drawn[f"all-methods-{name}"] = figure5(members)
        if tuned:
            drawn[f"tuned-{name}"] = figure5(tuned)
    drawn |= _best(runs)
    if why.measure(runs):
        drawn["step-of-a-pair"] = why.step_of_a_pair()
    sweeps = naming.group(runs, "validation")
    for dataset in dict.fromkeys(key[:2] for key in sweeps):
        panels = [
            (key, [run for run in members if not naming.is_tuned(run)])
            for key, members in sweeps.items()
            if key[:2] == dataset
        ]
        name = "lam-sweep" if len({key[:2] for key in sweeps}) == 1 else f"lam-sweep-{dataset[0]}-{dataset[1]:g}"
        if figure := lam_sweep([(key[2], members) for key, members in panels]):
            drawn[name] = figure
    return drawn


def _best(runs: Sequence[Run]) -> dict[str, Figure]:
    """Of every method at its best."""
    drawn = {}
    for task in dict.fromkeys(key[0] for key in best.cells(runs)):
        suffix = "" if task == "mnist" else f"-{task}"
        drawn[f"error-against-density{suffix}"] = error_against_density(runs, task)
        if not suffix and (figure := in_brief(runs, task)):  # which the README shows
            drawn["error-against-density-in-brief"] = figure
        members = best.cells(runs).get((task, *OVER_TIME))
        if members and (figure := density_over_time(members)):
            drawn[f"density-over-time{suffix}"] = figure
    return drawn


def _pictures(found: Mapping[str, tuple[Run, Any]]) -> dict[str, Figure]:
    """Of the runs that have left parameters."""
    drawn = {"first-layer": pictures.masks(found)} if found else {}
    if annealed := next((of for of in found.values() if relaxed.is_annealed(of[0].config)), None):
        drawn["lam-falling"] = pictures.lam_falling(*annealed)
    return drawn


def _name(key: tuple[Any, ...], keys: Collection[tuple[Any, ...]]) -> str:
    """By layers, and by data set and density where these differ."""
    dataset, density, layers = key
    parts = [dataset] if len({other[0] for other in keys}) > 1 else []
    parts += [f"density{density:g}"] if len({other[1] for other in keys}) > 1 else []
    return "-".join([*parts, "layers" + ("".join(map(str, layers)) or "all")])


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    return figures_of("experiments.mnist_pruning.report.figures", __doc__, make, arguments)


if __name__ == "__main__":
    console.run(main)
