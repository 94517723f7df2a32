"""The simplex of three coordinates, as an equilateral triangle in the plane."""

import itertools

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Polygon

from ops.permutahedron import lmo

# Corners of e_1 (left), e_2 (right), e_3 (top); the side is 1.
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3.0) / 2.0]])


def plane(y: np.ndarray) -> np.ndarray:
    """From points of the simplex, shape `(..., 3)`, to the plane, shape `(..., 2)`."""
    return np.asarray(y) @ CORNERS


def vertices(w: tuple[float, float, float]) -> np.ndarray:
    """The vertices of the permutahedron `P(w)`, shape `(m, 3)`, counter-clockwise.

    Each is where a linear function is largest, and every order of its coefficients gives one: of these functions
    there is one for each permutation.
    """
    x = np.array(list(itertools.permutations((1.0, 2.0, 3.0))))
    found = np.unique(np.asarray(lmo(x, np.asarray(w))), axis=0)
    around = plane(found) - plane(np.full(3, sum(w) / 3.0))
    return found[np.argsort(np.arctan2(around[:, 1], around[:, 0]))]


def outline(w: tuple[float, float, float], **look) -> Polygon:
    """The permutahedron `P(w)` as a patch."""
    return Polygon(plane(vertices(w)), closed=True, **look)


def bare(axes: Axes, margin: tuple[float, float, float]) -> None:
    """No frame, equal scales, and room for labels: to the left and right, below, and above."""
    sides, below, above = margin
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_xlim(-sides, 1.0 + sides)
    axes.set_ylim(-below, CORNERS[2, 1] + above)
