"""Rows at the edge of the domain: infinite entries, NaN, and a relaxation narrower than the entries can tell."""

import numpy as np
import pytest

from ops import hard_topk_mag, topk_mag, topk_mask
from tests.ops import oracles

SHAPE = (20, 40)
X = oracles.samples(SHAPE, dtype=np.float32)
INF = np.inf

# Entries that rows begin with, what fills them, k, and the mask of these entries.
INFINITE = [
    ([3, 1, 2], -INF, 5, [1, 1, 1]),  # fewer than k take part
    ([], -INF, 5, []),
    ([-7], -INF, 0.25, [0.25]),
    ([1, INF, 2, INF, 3], 0, 3, [0, 1, 0, 1, 1]),
    ([INF, 0, INF, INF, 1], 0, 2, [2 / 3, 0, 2 / 3, 2 / 3, 0]),
    ([INF], -INF, 0, [0]),
]


def test_infinite_entries_are_absent_or_come_first():
    p = 4 / 3
    x, k = X.copy(), np.full(20, 7.0, np.float32)
    expected = np.zeros((len(INFINITE), 40))
    for row, (entries, fill, count, mask) in enumerate(INFINITE):
        x[row], k[row] = fill, count
        x[row, : len(entries)], expected[row, : len(entries)] = entries, mask
    found = np.asarray(topk_mask(x, k, lam=0.5, p=p))
    np.testing.assert_allclose(found[: len(INFINITE)], expected, atol=1e-6)
    np.testing.assert_allclose(found[len(INFINITE) :].sum(axis=1), 7, rtol=1e-6)
    x[0] = [1, -INF, 2, *37 * [0]]
    kept = topk_mag(x, np.full(20, 2), lam=0.01, p=p, debias=True)
    np.testing.assert_allclose(kept[0, :4], [0, -INF, 2, 0], atol=2e-6)


def test_nan_parameter_poisons_its_row_alone():
    for name in ("k", "lam"):
        arguments = {"k": np.full(20, 7.0, np.float32), "lam": np.full(20, 0.5, np.float32)}
        arguments[name][3] = np.nan
        np.testing.assert_array_equal(np.isnan(topk_mask(X, **arguments)), np.broadcast_to(np.eye(20)[3:4].T, SHAPE))


@pytest.mark.parametrize("operator", [hard_topk_mag, topk_mask])
def test_a_nan_marks_its_row_in_any_number_of_rows(operator):
    """XLA's CPU backend drops NaNs from the maximum of longer arrays."""
    x = np.tile(np.float32([0.1, 0.2, np.nan, 0.1, 0.3, 0.1]), (1024, 1))
    for k in (0, 2, 6):
        assert np.all(np.isnan(operator(x, k)))
