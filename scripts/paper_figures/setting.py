"""What the drawing of a figure depends on, and what it gives."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Setting:
    """How finely to draw, and from which files.

    Attributes:
      fineness: number of points along a line or an edge, relative to that of the finished figures.
      bench: directory with the timings.
    """

    fineness: float = 1.0
    bench: Path = Path("results/bench")

    def points(self, finished: int) -> int:
        """How many points stand for `finished` of them: at least 21, and odd, so that one is in the middle."""
        return max(21, round(self.fineness * (finished - 1)) // 2 * 2 + 1)


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure to draw.

    Attributes:
      name: of its files, without suffix.
      number: in the paper; None for our own.
      caption: one paragraph of Markdown.
      draw: draws it, in double precision and under the style sheet.
    """

    name: str
    number: int | None
    caption: str
    draw: Callable[[Setting], Figure]


class MissingError(Exception):
    """What a figure is drawn from is not there; the message says how to make it."""
