"""All figures of the operators, and the page with their captions."""

import sys
from collections.abc import Iterable
from pathlib import Path

import jax
import matplotlib as mpl

from experiments.core.record.files import write_atomically
from experiments.core.report.style import save
from scripts.paper_figures.baselines import BASELINES
from scripts.paper_figures.figure1 import FIGURE1
from scripts.paper_figures.figure2 import FIGURE2
from scripts.paper_figures.figure3 import FIGURE3
from scripts.paper_figures.figure4 import FIGURE4
from scripts.paper_figures.figure8 import FIGURE8
from scripts.paper_figures.figure9 import FIGURE9
from scripts.paper_figures.setting import Drawing, MissingError, Setting
from scripts.paper_figures.style import DPI, SHEET

DRAWINGS = (FIGURE1, FIGURE2, FIGURE3, FIGURE4, FIGURE8, FIGURE9, BASELINES)


def make(directory: Path, setting: Setting) -> list[Path]:
    """Draws all figures whose data are there; returns the files written, and says on stderr what is missing."""
    written, drawn = [], []
    with mpl.rc_context(SHEET), jax.enable_x64(True):
        for drawing in DRAWINGS:
            try:
                figure = drawing.draw(setting)
            except MissingError as missing:
                print(missing, file=sys.stderr)
                continue
            written += save(figure, directory, drawing.name, dpi=DPI)
            drawn.append(drawing)
    if drawn:
        written.append(directory / "captions.md")
        write_atomically(written[-1], captions(drawn))
    return written


def captions(drawings: Iterable[Drawing]) -> str:
    """The captions as a page of Markdown with the figures in it."""
    parts = ["# Figures of the operators", "Made by `python -m scripts.paper_figures`."]
    for drawing in drawings:
        source = f"Figure {drawing.number} of the paper, recomputed" if drawing.number else "Not in the paper"
        parts += [f"![{drawing.name}]({drawing.name}.svg)", f"**{source}.** {drawing.caption}"]
    return "\n\n".join(parts) + "\n"
