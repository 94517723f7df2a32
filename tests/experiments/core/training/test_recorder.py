"""Step times, rates and utilisation, of hardware that the tests make up; and the line that people see of a row."""

import dataclasses
import time
import types

import numpy as np
import pytest

from experiments.core.record import hardware, metrics
from experiments.core.training import mesh as mesh_lib
from experiments.core.training import recorder, train
from experiments.core.training.experiment import Plan, Recipe
from experiments.core.training.recorder import MetricsSinceRow, Progress
from tests.experiments.toy import build, toy_config


def test_peaks_by_name():
    kinds = {"NVIDIA H100 80GB HBM3": 989e12, "NVIDIA H100 PCIe": 756e12, "TPU v5 lite": 197e12, "TPU v5p": 459e12}
    for kind, flops in {**kinds, "cpu": None}.items():
        assert hardware.peak_flops(types.SimpleNamespace(device_kind=kind)) == flops


def test_a_row_at_a_known_peak(monkeypatch):
    monkeypatch.setattr(hardware, "peak_flops", lambda device: 1e9)
    monkeypatch.setattr(hardware, "memory_in_use", lambda: 123)
    config = toy_config(mesh={"data": 8})
    setup = types.SimpleNamespace(
        config=config, mesh=mesh_lib.make(config), experiment=types.SimpleNamespace(flops_per_example=1e5)
    )
    interval = MetricsSinceRow({"loss": np.zeros((1, 0), np.float32)})
    assert set(recorder.performance(setup, interval).values()) == {None, 123}
    interval.step_seconds = [0.01, 0.01, 0.04]
    row = recorder.performance(setup, interval)
    assert row["step_seconds"] == 0.01
    assert row["images_per_second"] == 64 / 0.02
    assert row["mfu"] == pytest.approx(64 * 1e5 / 0.01 / 8e9, rel=1e-3)
    assert row["peak_memory_bytes"] == 123


@pytest.fixture
def clock(monkeypatch):
    """Seconds, to be set."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_time_left_counts_from_launch(clock, capsys):
    plan = Plan(10, 1000, 1, 100, 100, "step")
    progress = Progress(("error",), plan, 200, print)
    row = {"step": 200, "diverged": [False, True, False], "train_loss": [None] * 3, "error": [1.0, None, 2.0]}
    progress.show(row)
    clock[0] = 90.0
    progress.show(row | {"step": 300, "train_loss": [2.0, None, 4.0]})
    clock[0] = 4500.0
    progress.reached(301)
    clock[0] = 4520.0
    progress.reached(302)  # too soon after the last line
    assert capsys.readouterr().out.splitlines() == [
        "step  200/1000  train_loss -  error 1.5  1 of 3 seeds diverged",
        "step  300/1000  train_loss 3  error 1.5  1 of 3 seeds diverged  1.11 a second, 10:30 left",
        "step  301/1000  44.6 s each, 8:39:04 left",
    ]


def metrics_of(*values):
    return {"loss": np.asarray([values], np.float32), "router": {"dropped": np.asarray([values], np.float32) / 3}}


def test_means_cover_every_dispatched_step():
    since_row = MetricsSinceRow(metrics_of())
    assert np.isnan(since_row.means()["loss"]).all()
    since_row.start()
    time.sleep(0.02)
    since_row.dispatched(metrics_of(1, 2))
    since_row.dispatched(metrics_of(6))
    since_row.finish()
    np.testing.assert_allclose(since_row.means()["loss"], [3])
    np.testing.assert_allclose(since_row.means()["router"]["dropped"], [1])
    first, second = since_row.step_seconds
    assert first >= 0.01
    assert np.isclose(since_row.seconds, 2 * first + second)


@pytest.mark.parametrize("seeds", [(0, 1), (3,)])
def test_at_end_metrics_are_in_the_last_row(tmp_path, seeds):
    def at_end(params):
        return {"shape": np.float32(params["first"]["kernel"].shape[-1])}

    recipe = Recipe("toy", lambda config: None, lambda *of: dataclasses.replace(build(*of), at_end=at_end))
    config = toy_config(seeds=seeds, eval_every=10, checkpoint_every=20)
    train.run(recipe, config, tmp_path / "run")
    found = [row.get("shape") for row in metrics.read(tmp_path / "run" / "metrics.jsonl")]
    assert found == [None, None, [512.0] * len(seeds)]
