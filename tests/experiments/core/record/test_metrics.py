"""Numbers of rows in strict JSON, and events for TensorBoard, told from the calls of clu, without TensorFlow."""

import json
from contextlib import closing

import numpy as np

from experiments.core.record import metrics
from tests.experiments.core.fake_clu import replace_clu


def test_values_of_diverged_seeds_and_what_is_not_finite_become_null():
    measured = {"loss": np.float32([0.1, np.nan, 3]), "layers": {"1": np.float32([1, 2, np.inf])}}
    rows = metrics.per_seed(measured, diverged=np.array([False, False, True]))
    assert json.dumps(rows, allow_nan=False) == ('{"loss": [0.1, null, null], "layers": {"1": [1.0, 2.0, null]}}')
    assert dict(metrics.flatten(rows)) == {"loss": [0.1, None, None], "layers/1": [1.0, 2.0, None]}


def test_curves_are_means_over_seeds(monkeypatch, tmp_path):
    writers = replace_clu(monkeypatch)
    board = metrics.tensorboard(tmp_path / "tensorboard")
    with closing(metrics.Writer(tmp_path / "metrics.jsonl", [], board)) as writer:
        writer.append({"step": 3, "epoch": 1, "error": [1.0, None, 2.0], "by_layer": {"1": [4.0, 4.0, 7.0]}})
    written = [(name, arguments) for name, *arguments in writers[0].written]
    ((step, scalars),) = [arguments for name, arguments in written if name == "write_scalars"]
    assert (step, scalars["error"], scalars["by_layer/1"]) == (3, 1.5, 5.0)
