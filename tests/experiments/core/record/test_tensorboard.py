"""What a run gives to TensorBoard, told from the calls of clu: TensorFlow, which writes the events, is not imported."""

import json
from contextlib import closing

import numpy as np
import pytest

from experiments.core.record import metrics
from experiments.core.record.tensorboard import TensorBoard
from tests.experiments.core.fake_clu import replace_clu


@pytest.fixture
def board(monkeypatch, tmp_path):
    replace_clu(monkeypatch)
    return TensorBoard(tmp_path / "tensorboard")


def written(board, kind):
    return [entry[1:] for entry in board._writer.written if entry[0] == kind]


def test_curves_are_means_over_the_seeds_that_have_a_value(board, tmp_path):
    with closing(metrics.Writer(tmp_path / "metrics.jsonl", [], board)) as writer:
        writer.append({"step": 3, "epoch": 1, "error": [1.0, None, 2.0], "by_layer": {"1": [4.0, 4.0, 7.0]}})
    ((step, scalars),) = written(board, "write_scalars")
    assert step == 3
    assert (scalars["error"], scalars["by_layer/1"]) == (1.5, 5.0)


def test_config_summary_parameters_and_images_are_there(board):
    board.config(["config.p = 2.0", "config.lam = 1"])
    images = {"layer": np.zeros((2, 4, 4, 3), np.uint8)}
    board.end(7, {"state": "done"}, {"kernel": np.arange(3.0)}, images)
    (config, summary), ((step, histograms),) = written(board, "write_texts"), written(board, "write_histograms")
    assert config == (0, {"config": "    config.p = 2.0\n    config.lam = 1"})
    assert json.loads(summary[1]["summary"]) == {"state": "done"}
    assert (step, list(histograms)) == (7, ["kernel"])
    assert written(board, "write_images") == [(7, images)]
