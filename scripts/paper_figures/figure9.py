"""Figure 9: contours of the k-support negentropy on the simplex."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.tri import Triangulation

from experiments.core.report.style import RED
from ops.norms import k_support_negentropy
from scripts.paper_figures.setting import Drawing, Setting
from scripts.paper_figures.simplex import bare, outline, plane
from scripts.paper_figures.style import TEXT

LEVELS = np.linspace(-1.1, 0.0, 12)
LOOK = {"levels": LEVELS, "zorder": 1}
MIDDLE = plane(np.full(3, 1 / 3))
# The lowest value for each k, and colour and height of its label.
LOWEST = {1: ("0", "white", 0), 2: (r"$-\log 2$", "black", 2), 3: (r"$-\log 3$", "black", 7)}


def grid(points: int) -> np.ndarray:
    """All points of the simplex whose coordinates are multiples of `1 / (points - 1)`."""
    first, second = np.meshgrid(np.arange(points), np.arange(points), indexing="ij")
    inside = first + second < points
    ends = np.stack([first[inside], second[inside]], axis=-1)
    return np.concatenate([ends, points - 1 - ends.sum(axis=-1, keepdims=True)], axis=-1) / (points - 1)


def negentropy(y: np.ndarray, k: int) -> np.ndarray:
    """The k-support negentropy of points of the simplex."""
    return np.asarray(k_support_negentropy(y, k))


def draw(setting: Setting) -> Figure:
    """A panel for each `k`, all of the same levels."""
    y = grid(setting.points(121))
    points = Triangulation(*plane(y).T)
    figure = Figure(figsize=(TEXT, 2.1), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, k in zip(panels, (1, 2, 3), strict=True):
        # Rounding must not decide on which side of the highest level 0 lies.
        values = np.minimum(negentropy(y, k), -1e-12)
        filled = axes.tricontourf(points, values, cmap="YlGnBu", **LOOK)
        axes.tricontour(points, values, colors="black", linewidths=0.3, linestyles="-", **LOOK)
        axes.add_patch(outline((1.0, 0.0, 0.0), fill=False, edgecolor="black", linewidth=0.8))
        w = (1.0 / k, 1.0 / k if k > 1 else 0.0, 1.0 / k if k > 2 else 0.0)
        axes.add_patch(outline(w, fill=False, edgecolor=RED, linewidth=1.4, linestyle="--"))
        lowest, colour, lift = LOWEST[k]
        axes.annotate(lowest, MIDDLE, (0, lift), textcoords="offset points", color=colour, ha="center", va="center")
        axes.set_title(f"$k = {k}$", pad=2)
        bare(axes, (0.08, 0.1, 0.1))
        for i, (place, align) in enumerate((((-2, -3), "right"), ((2, -3), "left"), ((0, 8), "center"))):
            corner = plane(np.eye(3)[i])
            axes.annotate(f"$e_{i + 1}$", corner, place, textcoords="offset points", ha=align, va="top")
    panels[2].plot(*MIDDLE, marker="o", markersize=3, color=RED)
    figure.colorbar(
        filled, ax=list(panels), label="$k$-support negentropy", fraction=0.03, shrink=0.9, ticks=LEVELS[1::2]
    )
    return figure


FIGURE9 = Drawing(
    name="figure9",
    number=9,
    caption=(
        r"The $k$-support negentropy $\min_z \sum_i y_i \log(y_i / z_i)$ over $z \in [0, 1]^3$, $\sum_i z_i = k$, on "
        r"the simplex; lighter is lower. The paper shows $k = 2$. It is 0 everywhere for $k = 1$ and Shannon's "
        r"negentropy for $k = 3$. It is lowest, $-\log k$, exactly on the capped simplex $P(1_k / k)$ (dashed; a point "
        "for $k = 3$)."
    ),
    draw=draw,
)
