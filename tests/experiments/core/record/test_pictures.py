"""Histograms of awkward numbers."""

import numpy as np
import pytest

from experiments.core.record.pictures import BINS, Histogram


def test_numbers_are_counted_between_the_smallest_and_the_largest():
    histogram = Histogram.of(np.linspace(-1, 3, 4 * BINS, dtype=np.float32).reshape(BINS, 4))
    assert histogram.counts.tolist() == [4] * BINS
    np.testing.assert_allclose(histogram.edges, np.linspace(-1, 3, BINS + 1))


@pytest.mark.parametrize(
    ("numbers", "count"),
    [
        ([1, np.nan, np.inf, -np.inf, 2], 2),
        ([], 0),
        ([5, 5, 5], 3),
        ([1, np.nextafter(np.float32(1), np.float32(2))], 2),  # no bin of float32 lies between them
        ([np.finfo(np.float32).min, np.finfo(np.float32).max], 2),  # whose distance is none of float32
    ],
)
def test_what_has_no_width_or_is_not_finite_is_counted_all_the_same(numbers, count):
    histogram = Histogram.of(np.array(numbers, np.float32))
    assert histogram.counts.sum() == count
    assert len(histogram.counts) == BINS
    assert np.diff(histogram.edges).min() > 0
