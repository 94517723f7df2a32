"""The events of a run, told from the calls of clu: TensorFlow, which writes them, is not imported."""

import json
from contextlib import closing

import numpy as np

from experiments.core.record import metrics
from experiments.core.record.tensorboard import TensorBoard
from tests.experiments.core.fake_clu import replace_clu


def test_curves_are_means_over_seeds_and_config_and_summary_are_texts(monkeypatch, tmp_path):
    writers = replace_clu(monkeypatch)
    board = TensorBoard(tmp_path / "tensorboard")
    board.config(["config.p = 2.0", "config.lam = 1"])
    with closing(metrics.Writer(tmp_path / "metrics.jsonl", [], board)) as writer:
        writer.append({"step": 3, "epoch": 1, "error": [1.0, None, 2.0], "by_layer": {"1": [4.0, 4.0, 7.0]}})
    board.end(7, {"state": "done"}, {"kernel": np.arange(3.0)}, {})
    written = [(name, arguments) for name, *arguments in writers[0].written]
    ((step, scalars),) = [arguments for name, arguments in written if name == "write_scalars"]
    assert (step, scalars["error"], scalars["by_layer/1"]) == (3, 1.5, 5.0)
    config, summary = (arguments[1] for name, arguments in written if name == "write_texts")
    assert config == {"config": "    config.p = 2.0\n    config.lam = 1"}
    assert json.loads(summary["summary"]) == {"state": "done"}
