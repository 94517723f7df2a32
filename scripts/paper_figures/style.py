"""The style sheet of the paper's figures: the style of all figures at the sizes of a printed page."""

from typing import Any

from experiments.core.report.style import BLUE, GREEN, RED, STYLE

# The width of a column of the paper and of its text, in inches.
COLUMN, TEXT = 3.3, 6.8
DPI = 300

# The looks of operators: hard, differentiable almost everywhere, differentiable. The colours are the paper's; dashes
# tell the lines apart without them. The hard operator is wide enough to be seen beneath the others.
HARD: Any = {"color": BLUE, "linestyle": "-", "linewidth": 3.5, "alpha": 0.4}
HALF: Any = {"color": RED, "linestyle": "--", "linewidth": 1.4}
SMOOTH: Any = {"color": GREEN, "linestyle": "-", "linewidth": 1.4}

SHEET: Any = STYLE | {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.handlelength": 2.2,
    "legend.frameon": True,  # no grid behind the text
    "legend.edgecolor": "none",
    "legend.framealpha": 1.0,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "grid.linewidth": 0.5,
    "lines.solid_capstyle": "butt",
    "mathtext.fontset": "dejavusans",
}
