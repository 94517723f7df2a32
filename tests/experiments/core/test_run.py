"""The files that a run leaves, and that it ends with the same numbers whatever happens on the way."""

import json
import os
import random
import signal

from experiments.core.record import metrics
from tests.experiments.processes import assert_killed, signalled
from tests.experiments.support import command, rows_without_seconds, start


def test_run_leaves_its_files_and_learns(small_run):
    def read(name):
        return json.loads((small_run.workdir / name).read_text())

    assert read("config.json")["epochs"] == 20
    environment = read("environment.json")
    assert environment["command"][:3] == ["python", "-m", "experiments.mnist_pruning"]
    assert environment["packages"]["jax"]
    assert environment["devices"]["count"] >= 1
    rows = metrics.read(small_run.workdir / "metrics.jsonl")
    assert [(row["epoch"], row["step"]) for row in rows] == [(epoch, 11 * epoch) for epoch in range(21)]
    assert rows[0]["train_loss"] == [None, None]
    assert all(len(row["test_error"]) == 2 for row in rows)
    assert max(rows[-1]["test_error"]) < min(rows[0]["test_error"]) - 30
    seconds = [row["seconds"] for row in rows]
    assert seconds[0] == 0
    assert seconds == sorted(seconds)
    summary = read("summary.json")
    assert (summary["state"], summary["seeds"]) == ("done", [0, 1])
    assert summary["final"]["test_error"]["per_seed"] == rows[-1]["test_error"]


def test_progress_shows_epochs_and_time_left(small_run):
    lines = small_run.stdout.splitlines()
    assert any("epoch 10/20" in line and "test_error" in line and "left" in line for line in lines)


def test_killed_run_resumes_to_same_rows(small_run, tmp_path):
    arguments, workdir = command(tmp_path / "w", *small_run.options), tmp_path / "w"
    assert_killed([start(signalled(arguments, signal.SIGKILL, 10, random.Random(0).uniform(0, 0.03)))], workdir)
    last = metrics.read(workdir / "metrics.jsonl")[-1]
    with (workdir / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 15, "st')
    process = start(arguments, env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"})
    out, err = process.communicate(timeout=600)
    assert (process.returncode, "resuming after epoch" in out) == (0, True), err
    imports = [line.removeprefix("import time:").split("|") for line in err.splitlines()]
    assert all(len(fields) == 3 for fields in imports), err  # and nothing else
    imported = {fields[2].strip() for fields in imports}
    assert "jax" in imported
    assert not {"tensorflow", "tensorboard"} & imported
    assert rows_without_seconds(workdir) == rows_without_seconds(small_run.workdir)
    assert len(json.loads((workdir / "environment.json").read_text())["resumed"]) == 1
    assert metrics.read(workdir / "metrics.jsonl")[-1]["seconds"] > last["seconds"]
