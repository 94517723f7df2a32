"""What a run leaves behind, and that it ends with the same numbers whatever happens on the way."""

import json
import random
import signal

from experiments.core.record import metrics
from tests.experiments.processes import assert_killed, finish, signalled
from tests.experiments.support import command, rows_without_seconds, start


def test_rows_are_one_per_epoch_with_one_value_per_seed(small_run):
    rows = metrics.read(small_run.workdir / "metrics.jsonl")
    assert [row["epoch"] for row in rows] == list(range(21))
    assert [row["step"] for row in rows] == [11 * epoch for epoch in range(21)]
    assert rows[0]["train_loss"] == [None, None]
    assert all(len(row["test_error"]) == 2 for row in rows)
    seconds = [row["seconds"] for row in rows]
    assert seconds[0] == 0
    assert seconds == sorted(seconds)


def test_training_learns(small_run):
    first, *_, last = metrics.read(small_run.workdir / "metrics.jsonl")
    assert max(last["test_error"]) < min(first["test_error"]) - 30


def test_config_environment_and_summary_lie_beside_the_rows(small_run):
    read = lambda name: json.loads((small_run.workdir / name).read_text())  # noqa: E731
    assert read("config.json")["epochs"] == 20
    environment = read("environment.json")
    assert environment["overrides"]["epochs"] == "20"
    assert environment["command"][:3] == ["python", "-m", "experiments.mnist_pruning"]
    assert environment["packages"]["jax"]
    assert environment["devices"]["count"] >= 1
    summary = read("summary.json")
    rows = metrics.read(small_run.workdir / "metrics.jsonl")
    assert summary["state"] == "done"
    assert summary["seeds"] == [0, 1]
    assert summary["final"]["test_error"]["per_seed"] == rows[-1]["test_error"]


def test_progress_shows_epochs_metrics_and_time_left(small_run):
    lines = small_run.stdout.splitlines()
    assert any("epoch 10/20" in line and "test_error" in line and "left" in line for line in lines)


def test_killed_or_stopped_by_a_signal_it_goes_on_and_ends_with_the_same_rows(small_run, tmp_path):
    """Killed at some moment, gone on and stopped by SIGTERM, gone on and finished after a row torn by a crash."""
    arguments, workdir = command(tmp_path / "w", *small_run.options), tmp_path / "w"
    assert_killed([start(signalled(arguments, signal.SIGKILL, 7, random.Random(0).uniform(0, 0.03)))], workdir)
    (out,) = finish([start(signalled(arguments, signal.SIGTERM, 13))])
    assert "resuming after epoch" in out
    assert "stopped by SIGTERM" in out
    last = metrics.read(workdir / "metrics.jsonl")[-1]
    assert 12 <= last["epoch"] < 20
    assert not (workdir / "summary.json").exists()
    with (workdir / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 15, "st')
    (out,) = finish([start(arguments)])
    assert f"resuming after epoch {last['epoch']}" in out
    assert rows_without_seconds(workdir) == rows_without_seconds(small_run.workdir)
    assert len(json.loads((workdir / "environment.json").read_text())["resumed"]) == 2
    assert metrics.read(workdir / "metrics.jsonl")[-1]["seconds"] > last["seconds"]


def test_training_imports_no_tensorflow(small_run):
    assert "jax" in small_run.imported
    assert not {"tensorflow", "tensorboard"} & small_run.imported
