"""Rows as arrays, runs of one config as one, and what thinning a curve out keeps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from experiments.core.record.summary import interval
from scripts.compare.series import Series, curve, pool, rows_kept

ROWS = [
    {
        "epoch": step / 10,
        "step": step,
        "seconds": 0.5 * step,
        "diverged": [False, step > 5],
        "loss": [1.0 * step, None if step > 5 else 3.0],
        "accuracy": {"1": [10.0, 11.0], "5": [20.0, 21.0]},
        "learning_rate": 0.1 if step else None,
        "performance": {"step_seconds": 0.2 if step else None, "mfu": None},
    }
    for step in (0, 5, 10)
]
CURVES = npst.arrays(float, st.integers(1, 300), elements=st.floats(-1e6, 1e6) | st.just(np.nan))


def test_metrics_are_steps_by_seeds():
    series = Series.of(ROWS, [3, 4])
    assert set(series.metrics) == {
        "loss",
        "accuracy/1",
        "accuracy/5",
        "learning_rate",
        "performance/step_seconds",
        "performance/mfu",
    }
    assert series.steps.tolist() == [0, 5, 10]
    np.testing.assert_array_equal(series.values["loss"], [[0, 3], [5, 3], [10, np.nan]])
    np.testing.assert_array_equal(series.values["learning_rate"], [[np.nan], [0.1], [0.1]])
    np.testing.assert_array_equal(series.values["seconds"], [[0], [1.25], [2.5]])  # of each of two seeds


def test_malformed_rows_are_refused():
    for values in ([1.0], ["a", "b"]):
        with pytest.raises((ValueError, TypeError)):
            Series.of([ROWS[0] | {"loss": values}], [3, 4])
    with pytest.raises(ValueError, match="twice"):
        Series.of([ROWS[0], ROWS[0]], [3, 4])


def test_curves_match_summary_intervals():
    values = np.random.default_rng(0).normal(size=(4, 5))
    values[1, 2] = values[2, 1:] = values[3] = np.nan
    rows = [ROWS[0] | {"step": step, "loss": row.tolist()} for step, row in enumerate(values)]
    for row in rows:
        row["accuracy"] = None
    mean, half = curve(Series.of(rows, range(5)).values["loss"])
    for i, row in enumerate(values):
        expected = interval([None if np.isnan(value) else value for value in row])
        assert mean[i] == pytest.approx(np.nan if expected["mean"] is None else expected["mean"], nan_ok=True)
        assert half[i] == pytest.approx(
            np.nan if expected["interval95"] is None else expected["interval95"], nan_ok=True
        )


def test_seeds_are_joined_step_by_step():
    joined = pool([Series.of(ROWS, [3, 4]), Series.of(ROWS[:2], [0, 1])])
    assert joined.steps.tolist() == [0, 5, 10]
    np.testing.assert_array_equal(joined.values["loss"], [[0, 3, 0, 3], [5, 3, 5, 3], [10, np.nan, np.nan, np.nan]])
    np.testing.assert_array_equal(joined.final["loss"], [10, np.nan, 5, 3])  # of each at its own end
    np.testing.assert_array_equal(joined.final["learning_rate"], [0.1, 0.1])
    np.testing.assert_allclose(curve(joined.values["epoch"])[0], [0, 0.5, 1.0])
    assert joined.values["learning_rate"].shape == (3, 2)


@given(CURVES, st.integers(4, 60))
def test_thinning_keeps_extremes_and_ends(values, limit):
    rows = rows_kept(values, limit)
    assert len(rows) == len(values) if len(values) <= limit else len(rows) <= limit
    assert (np.diff(rows) > 0).all()
    assert rows[0] == 0
    assert rows[-1] == len(values) - 1
    if not np.isnan(values).all():
        assert np.nanmax(values[rows]) == np.nanmax(values)
        assert np.nanmin(values[rows]) == np.nanmin(values)
