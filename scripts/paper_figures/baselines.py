"""Our own figure: one entry's mask and its derivative as it moves past the others, by every relaxed mask there is."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, RED
from ops import topk_mask
from ops.baselines import (
    entropic_ot_topk_mask,
    lapsum_topk_mask,
    neuralsort_topk_mask,
    perturbed_topk_mask,
    sigmoid_topk_mask,
    softsort_topk_mask,
)
from scripts.paper_figures.setting import Drawing, Setting
from scripts.paper_figures.style import TEXT

K = 2
OTHERS = (0.0, 1.0, 2.0, 3.0)
TIE = 2.0  # where the hard mask of the moving entry jumps
RANGE = (0.0, 4.0)
CLIMB = 0.4  # how far the entry moves while its mask goes from 1/4 to 3/4
SAMPLES = 100
# Enough for the strength that belongs to CLIMB to be known to a few percent.
MANY_SAMPLES = 1000


@dataclasses.dataclass(frozen=True)
class Method:
    """A relaxed mask.

    Attributes:
      name: of its panel.
      symbol: of its strength.
      mask: of rows of scores, at a strength; larger is smoother.
      colour: of its lines.
      exact: the same without randomness, or with little of it; None if `mask` has none.
    """

    name: str
    symbol: str
    mask: Callable[[Array, Array], Array]
    colour: str
    exact: Callable[[Array, Array], Array] | None = None


def _perturbed(samples: int) -> Callable[[Array, Array], Array]:
    return lambda x, sigma: perturbed_topk_mask(x, K, sigma=sigma, num_samples=samples, key=jax.random.key(0))


METHODS = (
    Method("relaxed, $p = 2$", r"\lambda", lambda x, lam: topk_mask(x, K, lam=lam), RED),
    Method("relaxed, $p = 4/3$", r"\lambda", lambda x, lam: topk_mask(x, K, lam=lam, p=4 / 3), GREEN),
    Method("sigmoid", "T", lambda x, t: sigmoid_topk_mask(x, K, temperature=t), BLACK),
    Method("LapSum", "T", lambda x, t: lapsum_topk_mask(x, K, temperature=t), BLACK),
    Method(
        "entropic transport",
        r"\epsilon",
        lambda x, epsilon: entropic_ot_topk_mask(x, K, epsilon=epsilon, tolerance=1e-9),
        BLACK,
    ),
    Method("SoftSort", "T", lambda x, t: softsort_topk_mask(x, K, temperature=t), BLACK),
    Method("NeuralSort", "T", lambda x, t: neuralsort_topk_mask(x, K, temperature=t), BLACK),
    Method(f"perturbed, {SAMPLES} samples", r"\sigma", _perturbed(SAMPLES), BLACK, _perturbed(MANY_SAMPLES)),
)


class Response(NamedTuple):
    """The mask of the moving entry, and its derivative in that entry, at each place."""

    mask: np.ndarray
    derivative: np.ndarray


def scores(s: np.ndarray) -> Array:
    """The moving entry first, one row for each place `s`."""
    return jnp.asarray(np.column_stack([s, np.tile(OTHERS, (len(s), 1))]))


def response(method: Method, s: np.ndarray, strength: float) -> Response:
    """What becomes of the moving entry at the places `s`."""
    x = scores(s)
    entry = jnp.zeros_like(x).at[:, 0].set(1.0)
    y, dy = jax.jvp(lambda x: method.mask(x, jnp.asarray(strength)), (x,), (entry,))
    return Response(np.asarray(y[:, 0]), np.asarray(dy[:, 0]))


def strength(method: Method, climb: float = CLIMB) -> float:
    """The strength at which the mask needs `climb` to go from 1/4 to 3/4, by bisection of its logarithm."""
    s = np.linspace(TIE - 1.0, TIE + 1.0, 81)
    x, mask = scores(s), method.exact or method.mask

    def needed(logarithm: float) -> float:
        # Masks of many samples are nearly monotone; what is not is noise.
        y = np.maximum.accumulate(np.asarray(mask(x, jnp.asarray(np.exp(logarithm)))[:, 0]))
        return float(np.interp(0.75, y, s) - np.interp(0.25, y, s))

    low, high = np.log(1e-3), np.log(10.0)
    for _ in range(14):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if needed(middle) < climb else (low, middle)
    return float(np.exp(0.5 * (low + high)))


def draw(setting: Setting) -> Figure:
    """For each method the mask, and below it the derivative."""
    s = np.linspace(*RANGE, setting.points(401))
    figure = Figure(figsize=(TEXT, 4.5), layout="constrained")
    axes = figure.subplots(4, 4, sharex=True, sharey="row", height_ratios=(1.25, 1, 1.25, 1))
    for number, method in enumerate(METHODS):
        row, column = divmod(number, 4)
        upper, lower = axes[2 * row, column], axes[2 * row + 1, column]
        chosen = strength(method)
        found = response(method, s, chosen)
        upper.set_title(f"{method.name}\n${method.symbol} = {chosen:.2g}$", fontsize=7.5)
        upper.plot(s, s > TIE, color=BLUE, alpha=0.35, linewidth=1.2)
        for panel, values in ((upper, found.mask), (lower, found.derivative)):
            if method.exact is None:
                panel.plot(s, values, color=method.colour, linewidth=1.2)
            else:
                panel.plot(s, values, color=method.colour, linestyle="", marker=".", markersize=1.2)
        _mark_zeros(upper, s, found.mask, -0.09)
        _mark_zeros(lower, s, found.derivative, -0.3)
        lower.set_ylim(-0.45, 2.4)
        upper.set_ylim(-0.16, 1.12)
        lower.set_xlim(*RANGE)
        lower.set_xticks((0, 1, 2, 3, 4))
        if column == 0:
            upper.set_ylabel("mask $y_1$")
            lower.set_ylabel("$\\partial y_1 / \\partial x_1$")
        if row == 1:
            lower.set_xlabel("$x_1$")
    return figure


def _mark_zeros(axes: Axes, s: np.ndarray, values: np.ndarray, height: float) -> None:
    """A bar below wherever the value is exactly 0."""
    zero = values == 0
    half = 0.5 * (s[1] - s[0])
    axes.fill_between(
        np.repeat(s, 2) + np.tile((-half, half), len(s)),
        height * 1.25,
        height * 0.75,
        where=np.repeat(zero, 2),
        color=GREY,
        linewidth=0,
    )


BASELINES = Drawing(
    name="baselines",
    number=None,
    caption=(
        "One entry moves past four others, at 0, 1, 2 and 3; its top-2 mask (above; the hard one in pale blue) and the "
        "derivative of that in the entry (below). Strengths are such that every mask goes from 1/4 to 3/4 within "
        f"{CLIMB:g}. Grey bars: the value is exactly 0. That is so for the paper's operators where the entry is "
        "clearly out, and for their derivatives where it is clearly in, too. The other masks and their derivatives "
        f"are positive everywhere, but for the perturbed mask: a mean of {SAMPLES} random ones, drawn anew for each "
        "point here."
    ),
    draw=draw,
)
