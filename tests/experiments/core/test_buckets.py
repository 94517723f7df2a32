"""A run in a bucket, by the clients of Google Cloud Storage that users have, and a server of our own."""

import json
import os
import signal

import pytest

from tests.experiments import buckets
from tests.experiments.support import command, rows_without_seconds, start

WORKDIR = "runs/lam=1e-3,seed=0"
OPTIONS = ("--config.epochs=40", "--config.checkpoint_every=20")


@pytest.fixture
def bucket():
    with buckets.serve() as server:
        yield server


def test_a_run_in_a_bucket_is_stopped_and_resumed_with_the_numbers_of_a_local_one(bucket, small_run):
    def begin():
        environment = os.environ | buckets.environment(bucket)
        return start(command(f"gs://bucket/{WORKDIR}", *OPTIONS), env=environment)

    def read(name):
        return bucket.objects[f"bucket/{WORKDIR}/{name}"][0].decode()

    first = begin()
    next(line for line in first.stdout if line.startswith("epoch  4/"))
    first.send_signal(signal.SIGTERM)
    out, err = first.communicate(timeout=1200)
    assert first.returncode == 0, err
    assert "stopped by SIGTERM" in out
    assert f"bucket/{WORKDIR}/summary.json" not in bucket.objects

    second = begin()
    out, err = second.communicate(timeout=1200)
    assert second.returncode == 0, err
    assert "resuming after epoch" in out
    rows = [json.loads(line) for line in read("metrics.jsonl").splitlines()]
    for row in rows:
        del row["seconds"]
    assert rows == rows_without_seconds(small_run.workdir)
    assert json.loads(read("config.json"))["epochs"] == 40
    assert len(json.loads(read("environment.json"))["resumed"]) == 1
    assert json.loads(read("summary.json"))["state"] == "done"
