"""Means and times of the steps between two rows; that a checkpoint keeps them is in `test_train_steps.py`."""

import time

import numpy as np

from experiments.core.training.since_row import MetricsSinceRow


def metrics_of(*values):
    return {"loss": np.asarray([values], np.float32), "router": {"dropped": np.asarray([values], np.float32) / 3}}


def test_means_and_times_over_the_steps_of_all_calls():
    since_row = MetricsSinceRow(metrics_of())
    assert np.isnan(since_row.means()["loss"]).all()
    since_row.start()
    time.sleep(0.02)
    since_row.dispatched(metrics_of(1, 2))
    since_row.dispatched(metrics_of(6))
    since_row.finish()
    np.testing.assert_allclose(since_row.means()["loss"], [3])
    np.testing.assert_allclose(since_row.means()["router"]["dropped"], [1])
    first, second = since_row.step_seconds
    assert first >= 0.01
    assert np.isclose(since_row.seconds, 2 * first + second)
