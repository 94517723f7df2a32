"""The selection that Figures 1 and 8 follow: two of four entries move past the two others."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from ops import hard_topk_mask, topk_mask
from scripts.paper_figures.setting import Setting
from scripts.paper_figures.style import COLUMN

K = 2
LAM = 0.6
# All that happens, and a little before and after.
RANGE = (0.0, 5.0)


def theta(s: np.ndarray) -> np.ndarray:
    """The scores `(3, 1, s - 1, s)`, one row for each `s`."""
    return np.stack([np.full_like(s, 3.0), np.full_like(s, 1.0), s - 1.0, s], axis=-1)


def selected(s: np.ndarray, p: float | None) -> np.ndarray:
    """`y_2 + y_3` of the top-2 mask of `theta(s)`: relaxed with exponent `p`, or hard."""
    x = jnp.asarray(theta(s))
    y = np.asarray(hard_topk_mask(x, K) if p is None else topk_mask(x, K, lam=LAM, p=p))
    return y[..., 1] + y[..., 2]


def broken(s: np.ndarray, y: np.ndarray, jump: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """A line with gaps where it jumps: matplotlib would connect what is not connected."""
    places = np.flatnonzero(np.abs(np.diff(y)) > jump) + 1
    return np.insert(s, places, np.nan), np.insert(y, places, np.nan)


def drawn(setting: Setting, lines: Mapping[str, tuple[float | None, Any]]) -> Figure:
    """The selection against `s`, a line for each label: its exponent, or None for the hard mask, and its look."""
    s = np.linspace(*RANGE, setting.points(1101))
    figure = Figure(figsize=(COLUMN, 2.1), layout="constrained")
    axes = figure.subplots()
    for name, (p, look) in lines.items():
        y = selected(s, p)
        axes.plot(*(broken(s, y) if p is None else (s, y)), label=name, **look)
    axes.set_xlim(*RANGE)
    axes.set_ylim(-0.04, 1.04)
    axes.set_xlabel("$s$")
    axes.set_ylabel("$y_2 + y_3$")
    axes.legend(loc="center", bbox_to_anchor=(0.5, 0.55))
    return figure
