"""Figure 8: Figure 1 for more exponents."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from scripts.paper_figures.moving_entry import LAM, drawn
from scripts.paper_figures.setting import Drawing, Setting
from scripts.paper_figures.style import HARD

EXPONENTS = {"1.1": 1.1, "1.2": 1.2, "4/3": 4 / 3, "1.5": 1.5, "2": 2.0}


def draw(setting: Setting) -> Figure:
    """One line for each exponent, from dark (small) to light."""
    colours = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, len(EXPONENTS)))
    lines: dict[str, tuple[float | None, Any]] = {"hard": (None, HARD)}
    for (name, p), colour in zip(EXPONENTS.items(), colours, strict=True):
        lines[f"$p = {name}$"] = p, {"color": colour, "linewidth": 1.2}
    return drawn(setting, lines)


FIGURE8 = Drawing(
    name="figure8",
    number=8,
    caption=(
        rf"As Figure 1 ($\lambda = {LAM:g}$), with more exponents $p$. Whatever $p$, the mask changes within "
        r"$\lambda$ of a tie and nowhere else; the smaller $p$, the later and the more suddenly it does so."
    ),
    draw=draw,
)
