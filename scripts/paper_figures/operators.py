"""Figures 1, 2, 3, 8 and 9: masks along a line, permutahedra, maps of the top-k in magnitude, k-support negentropy."""

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Polygon
from matplotlib.tri import Triangulation

from experiments.core.report.style import BLUE, GREY, RED
from ops import hard_topk_mag, hard_topk_mask, topk_mag, topk_mask
from ops.norms import topk_conjugate
from scripts.paper_figures.style import COLUMN, HALF, HARD, SMOOTH, TEXT

K = 2
# By label, an exponent, or None for the hard operator, and a look.
Lines = Mapping[str, tuple[float | None, Any]]
LINES: Lines = {"hard": (None, HARD), "$p = 2$": (2.0, HALF), "$p = 4/3$": (4 / 3, SMOOTH)}
EXPONENTS = {"1.1": 1.1, "1.2": 1.2, "4/3": 4 / 3, "1.5": 1.5, "2": 2.0}

MASK_LAM = 0.6
MASK_RANGE = (0.0, 5.0)  # from a little before the first change to a little after the last

MAG_LAM = 0.3
REACH = 2.0
CUT = 0.25  # an x_2 too small to be selected, so that the cut shows y_1 alone

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3.0) / 2.0]])  # e_1 left, e_2 right, e_3 on top
# Weights, name, edge and face of each, from the largest to the smallest; each lies within the one before.
POLYTOPES = (
    ((1.0, 0.0, 0.0), "simplex (top-1)", "#8A6D3B", "#F7EBD5"),
    ((2 / 3, 1 / 3, 0.0), "hexagon (partial ranking)", GREY, "#D9D9D9"),
    ((1 / 2, 1 / 2, 0.0), "capped simplex (top-2)", BLUE, "#9CCBE8"),
)
# The lowest negentropy for each k, and colour and height of its label.
LOWEST = {1: ("0", "white", 0), 2: (r"$-\log 2$", "black", 2), 3: (r"$-\log 3$", "black", 7)}


def figure1() -> Figure:
    """Draws the hard mask and two relaxed ones along a line."""
    return _along_a_line(LINES)


def one_entry() -> Figure:
    """Draws the top-2 mask of an entry among four others as it grows: the hard mask jumps, the relaxed ones slide."""
    s, others = np.linspace(-1.0, 3.0, 1001), (2.0, 1.0, 0.0, -1.0)
    x = jnp.asarray(np.stack([s, *(np.full_like(s, value) for value in others)], axis=-1))
    figure = Figure(figsize=(COLUMN, 2.1), layout="constrained")
    axes = figure.subplots()
    for name, (p, look) in LINES.items():
        y = np.asarray(hard_topk_mask(x, K) if p is None else topk_mask(x, K, lam=1.0, p=p))[..., 0]
        label = f"{name} top-{K}" if p is None else f"relaxed, {name}, $\\lambda = 1$"
        axes.plot(*(broken(s, y) if p is None else (s, y)), label=label, **look)
    axes.set(xlim=(s[0], s[-1]), ylim=(-0.04, 1.04), xlabel="$x_1$, beside $2, 1, 0, -1$", ylabel="mask of $x_1$")
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.95), handlelength=1.4)  # where no line is
    return figure


def figure8() -> Figure:
    """Draws Figure 1 for more exponents, from dark (small) to light."""
    colours = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, len(EXPONENTS)))
    lines: dict[str, tuple[float | None, Any]] = {"hard": (None, HARD)}
    for (name, p), colour in zip(EXPONENTS.items(), colours, strict=True):
        lines[f"$p = {name}$"] = p, {"color": colour, "linewidth": 1.2}
    return _along_a_line(lines)


def _along_a_line(lines: Lines) -> Figure:
    s = np.linspace(*MASK_RANGE, 1101)
    figure = Figure(figsize=(COLUMN, 2.1), layout="constrained")
    axes = figure.subplots()
    for name, (p, look) in lines.items():
        y = selected(s, p)
        axes.plot(*(broken(s, y) if p is None else (s, y)), label=name, **look)
    axes.set(xlim=MASK_RANGE, ylim=(-0.04, 1.04), xlabel="$s$", ylabel="$y_2 + y_3$")
    axes.legend(loc="center", bbox_to_anchor=(0.5, 0.55))
    return figure


def selected(s: np.ndarray, p: float | None) -> np.ndarray:
    """Returns `y_2 + y_3` of the top-2 mask of `(3, 1, s - 1, s)`: relaxed with exponent `p`, or hard."""
    x = jnp.asarray(np.stack([np.full_like(s, 3.0), np.full_like(s, 1.0), s - 1.0, s], axis=-1))
    y = np.asarray(hard_topk_mask(x, K) if p is None else topk_mask(x, K, lam=MASK_LAM, p=p))
    return y[..., 1] + y[..., 2]


def broken(s: np.ndarray, y: np.ndarray, jump: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Puts gaps into a line where it jumps, which matplotlib would connect."""
    places = np.flatnonzero(np.abs(np.diff(y)) > jump) + 1
    return np.insert(s, places, np.nan), np.insert(y, places, np.nan)


def figure3() -> Figure:
    """Draws the relaxed top-k in magnitude as maps of one scale, and a cut through them.

    The paper draws surfaces in three dimensions. A map outlines where the operator is exactly 0, and its values can be
    read off. The cut shows whether the slope is continuous.
    """
    points = 281
    along = (np.arange(points) - points // 2) * (2 * REACH / (points - 1))  # exactly symmetric, and so are ties
    x1, x2 = np.meshgrid(along, np.append(along, CUT))
    figure = Figure(figsize=(TEXT, 1.8), layout="constrained")
    grid = figure.add_gridspec(1, 4, width_ratios=(1, 1, 1, 1.03))
    maps = [figure.add_subplot(grid[0, column]) for column in range(3)]
    cut = figure.add_subplot(grid[0, 3])
    for axes, (name, (p, look)) in zip(maps, LINES.items(), strict=True):
        y = kept(x1, x2, p)
        image = _map(axes, along, y[:, :-1])
        axes.axhline(CUT, color="black", linewidth=0.7, linestyle=(0, (1, 1.5)))
        axes.set_title(name)
        cut.plot(*broken(along, y[:, -1].sum(axis=0), 0.2), label=name, **look)
    maps[0].set_ylabel("$x_2$")
    for axes in maps[1:]:
        axes.set_yticklabels([])
    figure.colorbar(image, ax=maps, label="$y_1 + y_2$", fraction=0.05, pad=0.02, shrink=0.88, ticks=(-4, -2, 0, 2, 4))
    cut.set(title=f"along $x_2 = {CUT:g}$", xlabel="$x_1$", ylabel="$y_1 + y_2$", box_aspect=1)
    cut.set(xlim=(0.0, REACH), ylim=(-0.1, REACH))
    cut.legend(loc="lower right", borderaxespad=0.4, handlelength=1.5, labelspacing=0.2, handletextpad=0.5)
    return figure


def kept(x1: np.ndarray, x2: np.ndarray, p: float | None) -> np.ndarray:
    """Returns `(y_1, y_2)` of `x = (x_1, x_2, 1/2, 1)`, relaxed with exponent `p`, or hard; shape `(2, *x1.shape)`."""
    x = jnp.asarray(np.stack([x1, x2, np.full_like(x1, 0.5), np.ones_like(x1)], axis=-1))
    y = np.asarray(hard_topk_mag(x, K) if p is None else topk_mag(x, K, lam=MAG_LAM, p=p))
    return np.stack([y[..., 0], y[..., 1]])


def _map(axes: Axes, along: np.ndarray, y: np.ndarray) -> AxesImage:
    """Draws colours for values, contours at half steps, and hatching where the value is exactly 0."""
    total = y.sum(axis=0)
    half = (along[1] - along[0]) / 2
    extent = (along[0] - half, along[-1] + half) * 2
    image = axes.imshow(total, origin="lower", extent=extent, cmap="PuOr", vmin=-4, vmax=4, interpolation="nearest")
    levels = [level for level in np.arange(-3.5, 3.6, 0.5) if level != 0]
    axes.contour(along, along, total, levels=levels, colors="black", linewidths=0.25, linestyles="-")
    zero = np.all(y == 0, axis=0).astype(float)  # both are 0, rather than cancelling
    axes.contourf(along, along, zero, levels=(0.5, 1.5), colors="none", hatches=("///////",))
    axes.contour(along, along, zero, levels=(0.5,), colors="black", linewidths=0.7)
    square, ticks = (-REACH, REACH), (-2, -1, 0, 1, 2)
    axes.set(xlim=square, ylim=square, xticks=ticks, yticks=ticks, xlabel="$x_1$")
    axes.grid(False)
    return image


def figure2() -> Figure:
    """Draws three permutahedra on one simplex, and labels every vertex on the side that it lies on."""
    figure = Figure(figsize=(COLUMN, 2.85), layout="constrained")
    axes = figure.subplots()
    for w, title, edge, face in POLYTOPES:
        label = f"$P{_coordinates(np.array(w))}$, {title}"
        axes.add_patch(_outline(w, facecolor=face, edgecolor=edge, linewidth=1.0, label=label))
        for y in vertices(w):
            axes.plot(*plane(y), marker="o", markersize=3, color=edge, zorder=3)
            _label(axes, y, edge)
    _strip(axes, (0.16, 0.17, 0.09))
    figure.legend(loc="outside lower center", fontsize=7, handlelength=1.2, labelspacing=0.3)
    return figure


def _coordinates(y: np.ndarray) -> str:
    """Writes a point as `(2/3, 1/3, 0)`."""
    return "(" + ", ".join(str(Fraction(value).limit_denominator(10)) for value in y) + ")"


def _label(axes: Axes, y: np.ndarray, colour: str) -> None:
    """Writes the coordinates of a vertex outside the simplex: beside it, above it, or below it."""
    first, second, third = np.round(y, 6)
    middle = first == second
    if third == 0:  # the labels of this side do not fit in one line
        place, across, up = (0, -13 if middle else -4), "center", "top"
    elif middle:
        place, across, up = (0, 4), "center", "bottom"
    elif first > second:
        place, across, up = (-4, 0), "right", "center"
    else:
        place, across, up = (4, 0), "left", "center"
    text, point = _coordinates(y), tuple(plane(y))
    axes.annotate(text, point, place, textcoords="offset points", fontsize=6.5, color=colour, ha=across, va=up)


def figure9() -> Figure:
    """Draws contours of the k-support negentropy on the simplex, a panel for each k, all of the same levels."""
    y = grid(121)
    points = Triangulation(*plane(y).T)
    levels = np.linspace(-1.1, 0.0, 12)
    middle = plane(np.full(3, 1 / 3))
    figure = Figure(figsize=(TEXT, 2.1), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, k in zip(panels, (1, 2, 3), strict=True):
        # Rounding must not decide on which side of the highest level 0 lies.
        values = np.minimum(np.asarray(topk_conjugate(y, k, phi="exp")), -1e-12)
        filled = axes.tricontourf(points, values, cmap="YlGnBu", levels=levels, zorder=1)
        axes.tricontour(points, values, colors="black", linewidths=0.3, linestyles="-", levels=levels, zorder=1)
        axes.add_patch(_outline((1.0, 0.0, 0.0), fill=False, edgecolor="black", linewidth=0.8))
        w = (1.0 / k, 1.0 / k if k > 1 else 0.0, 1.0 / k if k > 2 else 0.0)
        axes.add_patch(_outline(w, fill=False, edgecolor=RED, linewidth=1.4, linestyle="--"))
        lowest, colour, lift = LOWEST[k]
        axes.annotate(lowest, middle, (0, lift), textcoords="offset points", color=colour, ha="center", va="center")
        axes.set_title(f"$k = {k}$", pad=2)
        _strip(axes, (0.08, 0.1, 0.1))
        for i, (place, align) in enumerate((((-2, -3), "right"), ((2, -3), "left"), ((0, 8), "center"))):
            axes.annotate(f"$e_{i + 1}$", CORNERS[i], place, textcoords="offset points", ha=align, va="top")
    panels[2].plot(*middle, marker="o", markersize=3, color=RED)
    figure.colorbar(
        filled, ax=list(panels), label="$k$-support negentropy", fraction=0.03, shrink=0.9, ticks=levels[1::2]
    )
    return figure


def grid(points: int) -> np.ndarray:
    """Returns all points of the simplex whose coordinates are multiples of `1 / (points - 1)`, shape `(m, 3)`."""
    first_two = np.argwhere(np.add.outer(range(points), range(points)) < points)
    return np.column_stack([first_two, points - 1 - first_two.sum(axis=1)]) / (points - 1)


def plane(y: np.ndarray) -> np.ndarray:
    """Maps points of the simplex, shape `(..., 3)`, to a triangle of side 1 in the plane, shape `(..., 2)`."""
    return np.asarray(y) @ CORNERS


def vertices(w: tuple[float, float, float]) -> np.ndarray:
    """Returns the vertices of the permutahedron `P(w)`, the permutations of w, shape `(m, 3)`, counter-clockwise."""
    points = np.array(sorted(set(itertools.permutations(w))))
    around = plane(points) - plane(np.full(3, sum(w) / 3.0))
    return points[np.argsort(np.arctan2(around[:, 1], around[:, 0]))]


def _outline(w: tuple[float, float, float], **look: Any) -> Polygon:
    return Polygon(plane(vertices(w)), closed=True, **look)


def _strip(axes: Axes, margin: tuple[float, float, float]) -> None:
    """Removes the frame, makes scales equal, and leaves margins for labels at the sides, below and above."""
    sides, below, above = margin
    axes.set_axis_off()
    axes.set(aspect="equal", xlim=(-sides, 1.0 + sides), ylim=(-below, CORNERS[2, 1] + above))
