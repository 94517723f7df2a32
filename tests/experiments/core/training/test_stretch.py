"""What is kept between two rows."""

import json
import time

import numpy as np

from experiments.core.training.stretch import Stretch


def metrics_of(*values):
    return {"loss": np.asarray([values], np.float32), "router": {"dropped": np.asarray([values], np.float32) / 3}}


def test_means_over_the_steps_of_all_calls():
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


def test_it_comes_back_from_a_checkpoint_to_the_bit():
    values = np.random.default_rng(0).normal(size=(2, 50)).astype(np.float32)
    values[1, 3] = np.nan
    found = {"mask": values.reshape(2, 5, 10) < 0.5, "few": np.ones((2, 1), bool)}
    stretch = Stretch({"loss": values, "router": {"dropped": values / 7}}, seconds=1.25, found=found)
    restored = Stretch.from_json(json.loads(json.dumps(stretch.to_json())))
    assert restored.seconds == 1.25
    np.testing.assert_array_equal(restored.metrics["loss"], values)
    np.testing.assert_array_equal(restored.metrics["router"]["dropped"], values / 7)
    assert {name: array.dtype for name, array in restored.found.items()} == {"mask": bool, "few": bool}
    np.testing.assert_array_equal(restored.found["mask"], found["mask"])
    empty = Stretch.from_json(Stretch(metrics_of()).to_json())
    assert empty.metrics["loss"].shape == (1, 0)
    assert empty.found == {}
