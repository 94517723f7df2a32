"""Numbers of rows in strict JSON; rows that are cut short or damaged are in `test_damaged_runs.py`."""

import json

import numpy as np

from experiments.core.record import metrics


def test_values_of_diverged_seeds_and_what_is_not_finite_become_null():
    measured = {"loss": np.float32([0.1, np.nan, 3]), "layers": {"1": np.float32([1, 2, np.inf])}}
    rows = metrics.per_seed(measured, diverged=np.array([False, False, True]))
    assert json.dumps(rows, allow_nan=False) == ('{"loss": [0.1, null, null], "layers": {"1": [1.0, 2.0, null]}}')
    assert dict(metrics.flatten(rows)) == {"loss": [0.1, None, None], "layers/1": [1.0, 2.0, None]}
