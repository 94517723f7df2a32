"""Figure 3: the relaxed top-k in magnitude as a function of two entries.

The paper draws surfaces in three dimensions. Maps are drawn here instead: where the operator is exactly 0 has an
outline then, nothing is hidden behind anything else, and values can be read off. What a map cannot show, whether a
slope is continuous, is shown by a cut through all three.
"""

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from ops import hard_topk_mag, topk_mag
from scripts.paper_figures.moving_entry import broken
from scripts.paper_figures.setting import Drawing, Setting
from scripts.paper_figures.style import HALF, HARD, SMOOTH, TEXT

K = 2
LAM = 0.3
REACH = 2.0
# Of the cut: x_2 is so small that it is never selected, and y_1 is all that is seen.
CUT = 0.25
OPERATORS = {
    "hard": (None, HARD),
    "$p = 2$": (2.0, HALF),
    "$p = 4/3$": (4 / 3, SMOOTH),
}


def kept(x1: np.ndarray, x2: np.ndarray, p: float | None) -> np.ndarray:
    """`(y_1, y_2)` for `x = (x_1, x_2, 1/2, 1)`, relaxed with exponent `p`, or hard; shape `(2, *x1.shape)`."""
    x = jnp.asarray(np.stack([x1, x2, np.full_like(x1, 0.5), np.ones_like(x1)], axis=-1))
    y = np.asarray(hard_topk_mag(x, K) if p is None else topk_mag(x, K, lam=LAM, p=p))
    return np.stack([y[..., 0], y[..., 1]])


def draw(setting: Setting) -> Figure:
    """Three maps of one scale, and the cut through them."""
    points = setting.points(281)
    along = (np.arange(points) - points // 2) * (2 * REACH / (points - 1))  # exactly symmetric, for the ties to be so
    x1, x2 = np.meshgrid(along, np.append(along, CUT))
    figure = Figure(figsize=(TEXT, 1.8), layout="constrained")
    grid = figure.add_gridspec(1, 4, width_ratios=(1, 1, 1, 1.03))
    maps = [figure.add_subplot(grid[0, column]) for column in range(3)]
    cut = figure.add_subplot(grid[0, 3])
    for axes, (name, (p, look)) in zip(maps, OPERATORS.items(), strict=True):
        y = kept(x1, x2, p)
        image = _map(axes, along, y[:, :-1])
        axes.axhline(CUT, color="black", linewidth=0.7, linestyle=(0, (1, 1.5)))
        axes.set_title(name)
        cut.plot(*broken(along, y[:, -1].sum(axis=0), 0.2), label=name, **look)
    maps[0].set_ylabel("$x_2$")
    for axes in maps[1:]:
        axes.set_yticklabels([])
    figure.colorbar(image, ax=maps, label="$y_1 + y_2$", fraction=0.05, pad=0.02, shrink=0.88, ticks=(-4, -2, 0, 2, 4))
    cut.set_title(f"along $x_2 = {CUT:g}$")
    cut.set_xlabel("$x_1$")
    cut.set_ylabel("$y_1 + y_2$")
    cut.set_box_aspect(1)
    cut.set_xlim(0.0, REACH)
    cut.set_ylim(-0.1, REACH)
    cut.legend(loc="lower right", borderaxespad=0.4, handlelength=1.5, labelspacing=0.2, handletextpad=0.5)
    return figure


def _map(axes: Axes, along: np.ndarray, y: np.ndarray) -> AxesImage:
    """Colours for values, contours at half steps, and hatching where the value is exactly 0."""
    total = y.sum(axis=0)
    half = (along[1] - along[0]) / 2
    extent = (along[0] - half, along[-1] + half) * 2
    image = axes.imshow(total, origin="lower", extent=extent, cmap="PuOr", vmin=-4, vmax=4, interpolation="nearest")
    levels = [level for level in np.arange(-3.5, 3.6, 0.5) if level != 0]
    axes.contour(along, along, total, levels=levels, colors="black", linewidths=0.25, linestyles="-")
    zero = np.all(y == 0, axis=0).astype(float)  # and not two that cancel
    axes.contourf(along, along, zero, levels=(0.5, 1.5), colors="none", hatches=("///////",))
    axes.contour(along, along, zero, levels=(0.5,), colors="black", linewidths=0.7)
    axes.set_xlim(-REACH, REACH)
    axes.set_ylim(-REACH, REACH)
    axes.set_xticks((-2, -1, 0, 1, 2))
    axes.set_yticks((-2, -1, 0, 1, 2))
    axes.set_xlabel("$x_1$")
    axes.grid(False)
    return image


FIGURE3 = Drawing(
    name="figure3",
    number=3,
    caption=(
        r"The top-2 in magnitude ($\phi(x) = x^2/2$) of $x = (x_1, x_2, 1/2, 1)$: $y_1 + y_2$ for the hard operator "
        rf"and for the relaxed ones ($\lambda = {LAM:g}$), with contours at every 0.5. Where hatched, both are exactly "
        "0. Right: a cut along the dotted lines. The hard operator jumps; with $p = 2$ the output is continuous and "
        "has kinks, with $p = 4/3$ it is continuously differentiable along this cut; elsewhere it has kinks, too, "
        "where an entry becomes fully selected. Away from ties the relaxed operators differ from the hard one by their "
        r"shrinkage, to $x / (1 + \lambda)$ for $p = 2$."
    ),
    draw=draw,
)
