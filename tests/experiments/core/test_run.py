"""What a run leaves behind, and that it ends with the same numbers whatever happens on the way."""

import json
import os
import random
import signal
import sys

from experiments.core import metrics
from tests.experiments.processes import assert_killed, finish, signalled
from tests.experiments.support import ROOT, command, rows_without_seconds, start


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


def test_killed_at_any_moment_it_ends_with_the_same_rows(small_run, tmp_path):
    pause = random.Random(0)
    arguments = command(tmp_path / "w", *small_run.options)
    for rows in (2, 7, 13):
        killed = signalled(arguments, signal.SIGKILL, rows, pause.uniform(0, 0.03))
        assert_killed([start(killed)], tmp_path / "w")
    with (tmp_path / "w" / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 15, "st')
    (out,) = finish([start(arguments)])
    assert "resuming" in out
    assert rows_without_seconds(tmp_path / "w") == rows_without_seconds(small_run.workdir)


def test_a_signal_saves_and_exits_0_and_the_run_goes_on_from_there(small_run, tmp_path):
    """Stopped by SIGTERM, gone on and stopped by SIGINT, and gone on again."""
    arguments = command(tmp_path / "w", *small_run.options)
    gone_on = ""
    for number, rows in ((signal.SIGTERM, 5), (signal.SIGINT, 12)):
        (out,) = finish([start(signalled(arguments, number, rows))])
        assert f"stopped by {number.name}" in out
        assert gone_on in out
        last = metrics.read(tmp_path / "w" / "metrics.jsonl")[-1]
        assert rows - 1 <= last["epoch"] < 20
        assert not (tmp_path / "w" / "summary.json").exists()
        gone_on = f"after epoch {last['epoch']}"
    assert gone_on in finish([start(arguments)])[0]
    assert rows_without_seconds(tmp_path / "w") == rows_without_seconds(small_run.workdir)
    environment = json.loads((tmp_path / "w" / "environment.json").read_text())
    assert len(environment["resumed"]) == 2
    assert metrics.read(tmp_path / "w" / "metrics.jsonl")[-1]["seconds"] > last["seconds"]


def test_training_imports_no_tensorflow(tmp_path):
    code = (
        "import sys; from experiments.core import train;"
        "from experiments.mnist_pruning.experiment import RECIPE;"
        "from tests.experiments.support import small_config;"
        f"train.run(RECIPE, small_config('dense', epochs=1), {str(tmp_path / 'w')!r});"
        "assert 'tensorflow' not in sys.modules and 'tensorboard' not in sys.modules"
    )
    finish([start([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)})])
