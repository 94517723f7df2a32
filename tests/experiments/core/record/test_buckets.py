"""A run in a bucket, by the clients of Google Cloud Storage that users have, and a server of our own."""

import contextlib
import json
import os
import signal

import fsspec
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.core.errors import UsageError, in_one_line
from experiments.core.record import metrics
from experiments.core.record.files import absolute
from experiments.core.training import checkpoint, train
from experiments.core.training.checkpoint import Checkpoints
from experiments.core.training.recorder import MetricsSinceRow
from experiments.mnist_pruning.experiment import RECIPE
from tests.experiments import buckets
from tests.experiments.support import rows_without_seconds, small_config

WORKDIR = "runs/lam=1e-3,seed=0"


@pytest.fixture
def bucket():
    with buckets.serve() as server:
        yield server


@pytest.fixture
def here(bucket, monkeypatch):
    """The bucket, for this process."""
    for name, value in buckets.environment(bucket).items():
        monkeypatch.setenv(name, value)
    with contextlib.suppress(ValueError):
        fsspec.filesystem("gs").clear_instance_cache()
    return bucket


def test_bucket_run_resumes_like_a_local_one(here, tmp_path, monkeypatch, capsys):
    def read(name):
        return here.objects[f"bucket/{WORKDIR}/{name}"][0].decode()

    def append_and_stop(writer, row):
        append(writer, row)
        if row["epoch"] == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    config, append = small_config("dense", epochs=6, checkpoint_every=4), metrics.Writer.append
    with monkeypatch.context() as patch:
        patch.setattr(metrics.Writer, "append", append_and_stop)
        train.run(RECIPE, config, f"gs://bucket/{WORKDIR}")
    assert "stopped by SIGTERM after epoch 3" in capsys.readouterr().out
    assert f"bucket/{WORKDIR}/summary.json" not in here.objects

    train.run(RECIPE, config, f"gs://bucket/{WORKDIR}")
    assert "resuming after epoch 3" in capsys.readouterr().out
    train.run(RECIPE, config, tmp_path)
    rows = [json.loads(line) for line in read("metrics.jsonl").splitlines()]
    for row in rows:
        del row["seconds"]
    assert rows == rows_without_seconds(tmp_path)
    assert len(rows) == 7
    assert json.loads(read("config.json"))["epochs"] == 6
    assert len(json.loads(read("environment.json"))["resumed"]) == 1
    assert json.loads(read("summary.json"))["state"] == "done"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_inaccessible_bucket_is_refused(here, monkeypatch, capfd, caplog, method):
    handle = buckets._Handler._handle

    def refuse(handler, asked, *rest):
        if asked != method:
            return handle(handler, asked, *rest)
        return 400, {"error": {"code": 400, "message": "no access", "errors": []}}

    monkeypatch.setattr(buckets._Handler, "_handle", refuse)
    assert in_one_line(lambda: train.run(RECIPE, small_config("dense"), "gs://bucket/x") or 0) == 2
    said = capfd.readouterr().err
    assert said.startswith("error: --workdir=gs://bucket/x cannot be used: ")
    assert said.count("\n") == 1
    assert [record for record in caplog.records if record.name == "gcsfs"] == []


def test_damaged_checkpoint_is_set_aside(here):
    directory = absolute("gs://bucket/run/checkpoints")
    interval = MetricsSinceRow({"loss": np.zeros((1, 0), np.float32)})
    checkpoints = Checkpoints(directory)
    for step in (2, 3):
        checkpoints.save(step, {"w": jnp.full(300, step, jnp.float32)}, interval)
    like = {"w": jnp.zeros(300, jnp.float32)}

    key = max(
        (key for key in here.objects if key.startswith("bucket/run/checkpoints/3/state/")),
        key=lambda key: len(here.objects[key][0]),
    )
    content = bytearray(here.objects[key][0])
    content[len(content) // 2] ^= 1
    here.store(key, bytes(content), None)
    intact, ((damaged, _),) = checkpoint.find(directory)
    assert (intact, damaged) == (2, 3)
    np.testing.assert_array_equal(Checkpoints(directory).restore(like)[1]["w"], np.full(300, 2))

    assert str(checkpoint.set_aside(directory, 3)) == "gs://bucket/run/damaged-checkpoint-3"
    assert here.objects[key.replace("checkpoints/3", "damaged-checkpoint-3")][0] == content
    assert checkpoint.find(directory) == (2, [])

    # What orbax would not take for saved; and what nobody has said is.
    del here.objects["bucket/run/checkpoints/2/commit_success.txt"]
    with pytest.raises(UsageError, match=r"2: its files are not those that were saved"):
        checkpoint.find(directory)
    del here.objects["bucket/run/checkpoints/2/SHA256"]
    assert checkpoint.find(directory) == (None, [])
