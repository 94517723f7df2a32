"""Numbers of rows in strict JSON, and events for TensorBoard, told from the calls of clu, without TensorFlow."""

import json
import sys
import time
import types
from contextlib import closing

import numpy as np
import pytest

from experiments.core.record import metrics
from tests.experiments.core.fake_clu import replace_clu


def test_diverged_and_nonfinite_become_null():
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


@pytest.mark.parametrize("live", [False, True])
def test_curve_has_each_step_once_after_kill(monkeypatch, tmp_path, live):
    pytest.importorskip("tensorboard", reason="pip install --group data")
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", types.ModuleType("notf"))  # it needs no TensorFlow here
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    replace_clu(monkeypatch)
    now = iter(range(1_700_000_000, 1_800_000_000))
    monkeypatch.setattr(time, "time", lambda: next(now))
    watching = EventAccumulator(str(tmp_path))
    # The second launch goes on after step 3, the third at the start.
    for kept, until in [(0, 6), (4, 9), (0, 3), (3, 9)]:
        metrics.tensorboard(tmp_path, [{"step": step} for step in range(kept)])
        with (tmp_path / f"events.out.tfevents.{next(now)}.host.1.v2").open("wb") as file:  # as clu does
            RecordWriter(file).write(event_pb2.Event(file_version="brain.Event:2").SerializeToString())
            for step in range(kept, until):
                summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="error", simple_value=1.0)])
                RecordWriter(file).write(event_pb2.Event(step=step, summary=summary).SerializeToString())
        if live:
            watching.Reload()
    watching = watching if live else EventAccumulator(str(tmp_path), purge_orphaned_data=False)
    watching.Reload()
    assert [event.step for event in watching.Tensors("error")] == list(range(9))
