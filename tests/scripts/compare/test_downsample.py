"""What thinning a curve out keeps, and that it keeps no more than asked."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from scripts.compare.downsample import averages, rows_kept

CURVES = npst.arrays(float, st.integers(1, 300), elements=st.floats(-1e6, 1e6) | st.just(np.nan))


@given(CURVES, st.integers(4, 60))
def test_extremes_and_ends_are_kept_within_the_limit(values, limit):
    rows = rows_kept(values, limit)
    assert len(rows) == len(values) if len(values) <= limit else len(rows) <= limit
    assert (np.diff(rows) > 0).all()
    assert rows[0] == 0
    assert rows[-1] == len(values) - 1
    if not np.isnan(values).all():
        assert np.nanmax(values[rows]) == np.nanmax(values)
        assert np.nanmin(values[rows]) == np.nanmin(values)


def test_every_spike_is_drawn_in_its_place():
    values = np.sin(np.arange(10_000) / 500)
    values[[1234, 7777]] = [50.0, -50.0]
    rows = rows_kept(values, 200)
    assert {1234, 7777} <= set(rows.tolist())
    assert len(rows) <= 200


def test_short_curves_are_kept_whole():
    np.testing.assert_array_equal(rows_kept(np.arange(10.0), 10), np.arange(10))


def test_averages_are_means_and_not_the_middles_of_extremes():
    values = np.zeros(1002)
    values[1:-1:10] = 10.0  # one row in ten
    rows, means = averages(values, 22)
    np.testing.assert_allclose(means, 1.0)
    assert (np.diff(rows) == 100).all()


def test_averages_leave_out_what_is_missing():
    values = np.r_[0.0, [np.nan] * 50, np.full(50, 3.0), 0.0]
    _, means = averages(values, 6)
    np.testing.assert_allclose(means, [np.nan, 3.0])
