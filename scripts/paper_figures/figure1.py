"""Figure 1: the relaxed masks are sparse, as the hard one, and continuous, as it is not."""

import numpy as np
from matplotlib.figure import Figure

from scripts.paper_figures.moving_entry import LAM, RANGE, broken, label, selected
from scripts.paper_figures.setting import Drawing, Setting
from scripts.paper_figures.style import COLUMN, HALF, HARD, SMOOTH

LINES = {
    "hard": (None, HARD),
    "$p = 2$": (2.0, HALF),
    "$p = 4/3$": (4 / 3, SMOOTH),
}


def draw(setting: Setting) -> Figure:
    """The three lines of the paper."""
    s = np.linspace(*RANGE, setting.points(1101))
    figure = Figure(figsize=(COLUMN, 2.1), layout="constrained")
    axes = figure.subplots()
    for name, (p, look) in LINES.items():
        axes.plot(*broken(s, selected(s, p)), label=name, **look)
    label(axes)
    axes.legend(loc="center", bbox_to_anchor=(0.5, 0.55))
    return figure


FIGURE1 = Drawing(
    name="figure1",
    number=1,
    caption=(
        r"The top-k mask of $\theta(s) = (3, 1, s - 1, s)$ for $k = 2$: $y_2 + y_3$ against $s$. The hard mask jumps "
        rf"where two entries tie, at $s = 1$ and $s = 4$. The relaxed ones ($\lambda = {LAM:g}$) are continuous: "
        "with kinks for $p = 2$, differentiable everywhere for $p = 4/3$. All three are exactly 0 in between."
    ),
    draw=draw,
)
