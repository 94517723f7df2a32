"""What a run does with its streams: each is started once, and closed however the run ends."""

import contextlib
import dataclasses
import os
import signal

import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.core.input import pipeline
from experiments.core.record import metrics
from experiments.core.training import train
from experiments.core.training.experiment import Recipe
from tests.experiments.toy import RECIPE, STREAM, build, load_streams, toy_config, watched

# Of a run whose batches Grain makes; with processes that help it: test_pipeline.py.
PIPELINE = STREAM | {"input": {"recipe": "none", "size": 8, "augment_on": "host", "workers": 0, "prefetch": 1}}


class Broken(Exception):
    """Raised where a batch should have been made."""


def recording(log, at_step, pretrained=None):
    """The toy on streams that log when they are opened and closed; `at_step` comes before each training batch."""

    def load(config):
        data = load_streams(config)
        return dataclasses.replace(
            data,
            train_stream=watched(data.train_stream, at_step, lambda what: log.append(f"{what} training")),
            evaluation_stream=watched(
                data.evaluation_stream, lambda step: None, lambda what: log.append(f"{what} evaluation")
            ),
        )

    return Recipe("toy", lambda config: None, lambda config, data: build(config, data, pretrained), load)


@pytest.mark.parametrize("end", ["done", "interrupted", "failed", "refused"])
def test_streams_are_always_closed(tmp_path, capsys, end):
    def at_step(step):
        if step == 7 and end == "interrupted":
            os.kill(os.getpid(), signal.SIGTERM)
        if step == 7 and end == "failed":
            raise Broken

    log: list[str] = []
    foreign = {"head": np.zeros(3, np.float32)} if end == "refused" else None
    expected = {"failed": pytest.raises(Broken), "refused": pytest.raises(UsageError, match=r"not one of the model")}
    with expected.get(end, contextlib.nullcontext()):
        train.run(recording(log, at_step, foreign), toy_config(**STREAM | {"checkpoint_every": 20}), tmp_path)
    opened_and_closed = ["open training", "open evaluation", "close evaluation", "close training"]
    assert log == ([] if end == "refused" else opened_and_closed)
    assert ("stopped by SIGTERM after step" in capsys.readouterr().out) == (end == "interrupted")
    assert (tmp_path / "summary.json").exists() == (end == "done")


def test_resume_starts_each_stream_once(tmp_path, monkeypatch):
    starts = []
    start_stream = pipeline.Batches._start

    def counted(batches, step):
        starts.append((batches._job.seed, step))
        start_stream(batches, step)

    def broken_at_8(batches, step):
        if batches._job.seed is not None and step == 8:
            raise Broken
        return batch(batches, step)

    batch = pipeline.Batches.batch
    config = toy_config(**PIPELINE)
    with monkeypatch.context() as patch:
        patch.setattr(pipeline.Batches, "batch", broken_at_8)
        with pytest.raises(Broken):
            train.run(RECIPE, config, tmp_path)
    monkeypatch.setattr(pipeline.Batches, "_start", counted)
    train.run(RECIPE, config, tmp_path)
    assert starts == [(3, 6), (None, 0)]  # evaluated after steps 8, 12, 16 and 20
    assert [row["step"] for row in metrics.read(tmp_path / "metrics.jsonl")] == [0, 4, 8, 12, 16, 20]
