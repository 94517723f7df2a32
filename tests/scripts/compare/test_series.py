"""Rows as arrays, and runs of one config as one."""

import numpy as np
import pytest

from experiments.core.record.summary import interval
from scripts.compare.series import Curve, Series, pool

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


def test_metrics_are_arrays_by_row_and_seed():
    series = Series.of(ROWS, [3, 4])
    assert set(series.metrics) == {"loss", "accuracy/1", "accuracy/5"}
    assert set(series.of_the_run) == {"learning_rate", "performance/step_seconds", "performance/mfu"}
    np.testing.assert_array_equal(series.metrics["loss"], [[0, 3], [5, 3], [10, np.nan]])
    np.testing.assert_array_equal(series.of_the_run["learning_rate"], [[np.nan], [0.1], [0.1]])
    np.testing.assert_array_equal(series.seconds, [0, 1.25, 2.5])  # of each of two seeds


@pytest.mark.parametrize("values", [[1.0], 3.0, ["a", "b"], [1.0, [2.0]]])
def test_what_is_not_a_number_per_seed_is_refused(values):
    with pytest.raises((ValueError, TypeError)):
        Series.of([ROWS[0] | {"loss": values}], [3, 4])


def test_curves_have_the_means_and_intervals_of_summaries():
    values = np.random.default_rng(0).normal(size=(4, 5))
    values[1, 2] = values[2, 1:] = values[3] = np.nan
    curve = Curve.of(values)
    for i, row in enumerate(values):
        expected = interval([None if np.isnan(value) else value for value in row])
        assert curve.mean[i] == pytest.approx(np.nan if expected["mean"] is None else expected["mean"], nan_ok=True)
        half = expected["interval95"]
        assert curve.half[i] == pytest.approx(np.nan if half is None else half, nan_ok=True)
    assert curve.count.tolist() == [5, 4, 1, 0]


def test_runs_of_other_seeds_are_joined_step_by_step():
    longer = Series.of(ROWS, [3, 4])
    shorter = Series.of(ROWS[:2], [0, 1])
    joined = pool([longer, shorter])
    assert joined.seeds == [3, 4, 0, 1]
    np.testing.assert_array_equal(joined.step, [0, 5, 10])
    np.testing.assert_array_equal(joined.metrics["loss"][1], [5, 3, 5, 3])
    np.testing.assert_array_equal(joined.metrics["loss"][2], [10, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(joined.final["loss"], [10, np.nan, 5, 3])  # of each at its own end
    np.testing.assert_array_equal(joined.final["learning_rate"], [0.1, 0.1])
    np.testing.assert_allclose(joined.epoch, [0, 0.5, 1.0])
    assert joined.of_the_run["learning_rate"].shape == (3, 2)
