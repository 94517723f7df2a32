"""The look that all figures share, and the writing of figures: the same data give the same bytes."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.core.record.files import write_atomically

# Okabe and Ito's palette, which readers with any colour vision tell apart. Curves of the paper have its
# colours: grey, blue, red (p = 2), green (p = 4/3).
GREY, BLUE, RED, GREEN = "#777777", "#0072B2", "#D55E00", "#009E73"
ORANGE, PURPLE, SKY, BLACK = "#E69F00", "#CC79A7", "#56B4E9", "#000000"

Look = tuple[str, str]  # the colour and the dashes of a curve
Interval = dict[str, Any]

STYLE: Any = {
    "svg.hashsalt": "sparse-topk",  # otherwise the ids in an SVG are random
    "svg.fonttype": "path",  # the same look where the font is not installed
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def curve(
    axes: Axes, x: Sequence[float], values: Sequence[Interval | None], look: Look, *, shade: float = 0.12, **line: Any
) -> None:
    """Draws a line through the means of intervals (`summary.interval`), with their half widths as a band around it.

    A value of None or without a mean leaves a gap. `shade` is the opacity of the band; `line` goes to `Axes.plot`.
    """
    colour, dashes = look
    means, halves = _split(values)
    axes.plot(x, means, dashes, color=colour, **line)
    axes.fill_between(x, means - halves, means + halves, color=colour, alpha=shade, linewidth=0)


def bars(axes: Axes, x: Sequence[float], values: Sequence[Interval | None], look: Look, **line: Any) -> Any:
    """Draws intervals as points with bars, joined by a line; returns the handle for a legend."""
    colour, dashes = look
    means, halves = _split(values)
    return axes.errorbar(x, means, halves, color=colour, linestyle=dashes, capsize=2, **line)


def _split(values: Sequence[Interval | None]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the means, NaN where there is none, and the half widths."""
    known = [value or {"mean": None, "interval95": None} for value in values]
    means = np.array([np.nan if value["mean"] is None else value["mean"] for value in known])
    return means, np.array([value["interval95"] or 0.0 for value in known])


def save(figure: Figure, path: Path, *, dpi: float = 150) -> Path:
    """Writes a figure to `path`, in the format of its suffix, `.png` or `.svg`; returns the path.

    Args:
      figure: the figure, to be written under the style that it was made with.
      path: the file; its directory is created.
      dpi: dots per inch in a PNG, and in images within an SVG.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the metadata that changes from run to run: the date, and matplotlib's version.
    metadata = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}[path.suffix]
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix[1:], dpi=dpi, metadata=metadata)
    write_atomically(path, buffer.getvalue())
    return path
