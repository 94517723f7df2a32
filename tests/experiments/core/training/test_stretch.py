"""Means and times of the steps between two rows; that a checkpoint keeps them is in `test_train_steps.py`."""

import time

import numpy as np

from experiments.core.training.stretch import Stretch


def metrics_of(*values):
    return {"loss": np.asarray([values], np.float32), "router": {"dropped": np.asarray([values], np.float32) / 3}}


def test_means_and_times_over_the_steps_of_all_calls():
    stretch = Stretch(metrics_of())
    assert np.isnan(stretch.means()["loss"]).all()
    stretch.start()
    time.sleep(0.02)
    stretch.dispatched(metrics_of(1, 2))
    stretch.dispatched(metrics_of(6))
    stretch.finish()
    np.testing.assert_allclose(stretch.means()["loss"], [3])
    np.testing.assert_allclose(stretch.means()["router"]["dropped"], [1])
    first, second = stretch.step_seconds
    assert first >= 0.01
    assert np.isclose(stretch.seconds, 2 * first + second)
