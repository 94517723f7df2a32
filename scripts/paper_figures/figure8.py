"""Figure 8: Figure 1 for more exponents."""

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from scripts.paper_figures.moving_entry import LAM, RANGE, broken, label, selected
from scripts.paper_figures.setting import Drawing, Setting
from scripts.paper_figures.style import COLUMN, HARD

EXPONENTS = {"1.1": 1.1, "1.2": 1.2, "4/3": 4 / 3, "1.5": 1.5, "2": 2.0}


def draw(setting: Setting) -> Figure:
    """One line for each exponent, from dark (small) to light."""
    s = np.linspace(*RANGE, setting.points(1101))
    colours = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, len(EXPONENTS)))
    figure = Figure(figsize=(COLUMN, 2.1), layout="constrained")
    axes = figure.subplots()
    axes.plot(*broken(s, selected(s, None)), label="hard", **HARD)
    for (name, p), colour in zip(EXPONENTS.items(), colours, strict=True):
        axes.plot(s, selected(s, p), label=f"$p = {name}$", color=colour, linewidth=1.2)
    label(axes)
    axes.legend(loc="center", bbox_to_anchor=(0.5, 0.55))
    return figure


FIGURE8 = Drawing(
    name="figure8",
    number=8,
    caption=(
        rf"As Figure 1 ($\lambda = {LAM:g}$), with more exponents $p$. Whatever $p$, the mask changes within "
        r"$\lambda$ of a tie and nowhere else; the smaller $p$, the later and the more suddenly it does so."
    ),
    draw=draw,
)
