"""Draws the paper's figures of the operators: `python -m scripts.paper_figures`.

Writes PNG and SVG files to results/figures, where `captions.md` explains them. Figure 4 is drawn from the timings in
results/bench. The same code and timings give the same bytes.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import jax
import matplotlib as mpl

from experiments.core import console
from experiments.core.errors import in_one_line
from experiments.core.report.style import save
from scripts.paper_figures import operators, solvers
from scripts.paper_figures.style import DPI, SHEET

BENCH = Path("results/bench")
FIGURES = {
    "figure1": operators.figure1,
    "figure2": operators.figure2,
    "figure3": operators.figure3,
    "figure4": lambda: solvers.figure4(BENCH),
    "figure8": operators.figure8,
    "figure9": operators.figure9,
}


def make(directory: Path) -> list[Path]:
    """Draws all figures in double precision; returns the paths of the files written."""
    written = []
    with mpl.rc_context(SHEET), jax.enable_x64(True):
        for name, draw in FIGURES.items():
            written += save(draw(), directory, name, dpi=DPI)
    return written


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.paper_figures", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--out", type=Path, default=Path("results/figures"), help="directory to write to")
    out = parser.parse_args(arguments).out

    def work() -> int:
        print(*make(out), sep="\n")
        return 0

    return in_one_line(work)


if __name__ == "__main__":
    console.run(main)
