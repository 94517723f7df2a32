"""Draws the paper's figures of the operators: `python -m scripts.paper_figures DIR`.

Writes SVG files to DIR; results/figures/captions.md explains them. Figure 4 and `speed` show the timings in
results/bench. The same code and timings give the same bytes.
"""

from pathlib import Path

import jax
import matplotlib as mpl

from experiments.core import console
from experiments.core.report.making import on_directory
from experiments.core.report.style import save
from scripts.paper_figures import operators, solvers, speed
from scripts.paper_figures.style import DPI, SHEET
from scripts.report import RESULTS

BENCH = RESULTS / "bench"
FIGURES = {
    "figure1": operators.figure1,
    "figure2": operators.figure2,
    "figure3": operators.figure3,
    "figure4": lambda: solvers.figure4(BENCH),
    "figure8": operators.figure8,
    "figure9": operators.figure9,
    "mask": operators.one_entry,
    "speed": lambda: speed.speed(BENCH),
}


def make(directory: Path) -> None:
    """Draws all figures in double precision, and prints the paths of the files."""
    with mpl.rc_context(SHEET), jax.enable_x64(True):
        for name, draw in FIGURES.items():
            print(save(draw(), directory / f"{name}.svg", dpi=DPI), flush=True)


if __name__ == "__main__":
    console.run(lambda arguments: on_directory("scripts.paper_figures", (__doc__ or "").split(":")[0], make, arguments))
