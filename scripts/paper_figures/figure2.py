"""Figure 2: three permutahedra on the simplex."""

from fractions import Fraction

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.core.report.style import BLUE, GREY
from scripts.paper_figures.setting import Drawing, Setting
from scripts.paper_figures.simplex import bare, outline, plane, vertices
from scripts.paper_figures.style import COLUMN

# From the largest to the smallest, each within the one before: weights, name, edge, face.
POLYTOPES = (
    ((1.0, 0.0, 0.0), "simplex (top-1)", "#8A6D3B", "#F7EBD5"),
    ((2 / 3, 1 / 3, 0.0), "hexagon (partial ranking)", GREY, "#D9D9D9"),
    ((1 / 2, 1 / 2, 0.0), "capped simplex (top-2)", BLUE, "#9CCBE8"),
)


def fraction(value: float) -> str:
    """`2/3`, `1`, `0`."""
    return str(Fraction(value).limit_denominator(10))


def name(y: np.ndarray) -> str:
    """`(2/3, 1/3, 0)`."""
    return "(" + ", ".join(map(fraction, y)) + ")"


def draw(setting: Setting) -> Figure:
    """All on one simplex, every vertex labelled on the side it lies on."""
    del setting  # nothing here is sampled
    figure = Figure(figsize=(COLUMN, 2.85), layout="constrained")
    axes = figure.subplots()
    for w, title, edge, face in POLYTOPES:
        label = f"$P{name(np.array(w))}$, {title}"
        axes.add_patch(outline(w, facecolor=face, edgecolor=edge, linewidth=1.0, label=label))
        for y in vertices(w):
            axes.plot(*plane(y), marker="o", markersize=3, color=edge, zorder=3)
            _label(axes, y, edge)
    bare(axes, (0.16, 0.17, 0.09))
    figure.legend(loc="outside lower center", fontsize=7, handlelength=1.2, labelspacing=0.3)
    return figure


def _label(axes: Axes, y: np.ndarray, colour: str) -> None:
    """Writes the coordinates of a vertex outside the simplex: beside it, above it, or below it."""
    first, second, third = np.round(y, 6)
    middle = first == second
    if third == 0:  # this side is too short for all its labels in one line
        place, across, up = (0, -13 if middle else -4), "center", "top"
    elif middle:
        place, across, up = (0, 4), "center", "bottom"
    elif first > second:
        place, across, up = (-4, 0), "right", "center"
    else:
        place, across, up = (4, 0), "left", "center"
    x, height = plane(y)
    axes.annotate(name(y), (x, height), place, textcoords="offset points", fontsize=6.5, color=colour, ha=across, va=up)


FIGURE2 = Drawing(
    name="figure2",
    number=2,
    caption=(
        "Permutahedra $P(w)$ in the plane $y_1 + y_2 + y_3 = 1$: the convex hulls of the permutations of $w$. The "
        "probability simplex (beige) for top-1, the capped simplex (blue) for top-2, and a hexagon (grey) for partial "
        "ranking. Here each contains the next; all their vertices lie on the sides of the simplex."
    ),
    draw=draw,
)
