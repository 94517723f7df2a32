"""The numbers of design.md, section 1.4, in float64. One compilation for each operator and ``p``."""

import numpy as np
import pytest

from ops import topk_mag, topk_mask

pytestmark = pytest.mark.usefixtures("x64")

ABSENT = -np.inf  # fills rows up to five entries
FIFTHS = np.linspace(0, 1, 5)

# x, k, lam, then the mask for p = 2 and for p = 4/3
MASKS = [
    (
        FIFTHS,
        2,
        1.0,
        (0, 0.125, 0.375, 0.625, 0.875),
        (0.0023442783, 0.0561125175, 0.2534466196, 0.6880965846, 1),
    ),
    (2 * FIFTHS, 3, 1.0, (0, 0.25, 0.75, 1, 1), None),
    ((-5, -2, 3, 1, ABSENT), 2, 0.01, *2 * [(0, 0, 1, 1, 0)]),
    ((0, 0, -5, 5, ABSENT), 2, 0.01, *2 * [(0.5, 0.5, 0, 1, 0)]),
    (np.full(5, 7.0), 2, 1.0, *2 * [np.full(5, 0.4)]),
    ((-2, 0, 0.5, ABSENT, ABSENT), 1, 1.0, (0, 0.25, 0.75, 0, 0), None),  # sparsemax
]

# The same for the magnitude operator with debias.
MAGNITUDES = [
    (
        (0, 0.25, -0.5, 0.75, -1),
        2,
        1.0,
        (0, 0, -1 / 6, 2 / 3, -1),
        (0, 0.0531125104, -0.3307721326, 0.7220432312, -1),
    ),
    ((-5, -2, 3, 1, 0), 2, 0.01, *2 * [(-5, 0, 3, 0, 0)]),
]
COLUMNS = {2.0: 3, 4 / 3: 4}


def rows(table, p):
    return zip(*[(*row[:3], row[COLUMNS[p]]) for row in table if row[COLUMNS[p]] is not None], strict=True)


@pytest.mark.parametrize("p", COLUMNS)
def test_mask(p):
    x, k, lam, expected = map(np.array, rows(MASKS, p))
    np.testing.assert_allclose(topk_mask(x, k, lam=lam, p=p), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("p", COLUMNS)
def test_debiased_magnitude(p):
    x, k, lam, expected = map(np.array, rows(MAGNITUDES, p))
    np.testing.assert_allclose(topk_mag(x, k, lam=lam, p=p, debias=True), expected, rtol=0, atol=1e-10)


def test_figure_1():
    p, expected = 4 / 3, (0.995495, 0.004505, 0, 0, 0.5)
    s = np.array([0.5, 1.5, 2.0, 3.0, 4.0])
    theta = np.stack([np.full(5, 3.0), np.full(5, 1.0), s - 1, s], axis=-1)
    mask = topk_mask(theta, 2, lam=0.6, p=p)
    np.testing.assert_allclose(mask[:, 1] + mask[:, 2], expected, rtol=0, atol=5e-7)
