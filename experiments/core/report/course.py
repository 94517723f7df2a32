"""A metric in the course of training, as mean and interval over the seeds."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from experiments.core.record.metrics import Row
from experiments.core.record.summary import interval
from experiments.core.report.results import Run
from experiments.core.report.style import Look


class Course(NamedTuple):
    """Of each of R rows the step, and mean and half width of the interval, [R]; of a row without seeds NaN and 0."""

    steps: np.ndarray
    means: np.ndarray
    halves: np.ndarray


def course(run: Run, values: Callable[[Row], list[float | None]]) -> Course:
    """Of what `values` finds in a row, by seed; a seed that has diverged leaves the mean."""
    found = [interval(values(row)) for row in run.rows]
    means = np.array([np.nan if value["mean"] is None else value["mean"] for value in found])
    halves = np.array([value["interval95"] or 0.0 for value in found])
    return Course(np.array([row["step"] for row in run.rows]), means, halves)


def draw(axes: Axes, drawn: Course, look: Look, label: str) -> None:
    """A line with its band."""
    colour, dashes = look
    axes.plot(drawn.steps, drawn.means, color=colour, linestyle=dashes, linewidth=1.6, label=label)
    low, high = drawn.means - drawn.halves, drawn.means + drawn.halves
    axes.fill_between(drawn.steps, low, high, color=colour, alpha=0.12, linewidth=0)
