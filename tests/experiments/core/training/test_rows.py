"""Step times, rates and utilisation, of hardware that the tests make up; and the line that people see of a row."""

import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.core.record import hardware
from experiments.core.training import mesh as mesh_lib
from experiments.core.training import rows
from experiments.core.training.experiment import Experiment
from experiments.core.training.plan import Plan
from experiments.core.training.rows import Progress
from experiments.core.training.since_row import MetricsSinceRow
from tests.experiments.toy import toy_config


def loss(params, batch, key, progress):
    value = jnp.square(batch["x"] @ params).mean()
    return value, {"loss": value}


EXPERIMENT = Experiment(lambda key: None, loss, lambda *arguments: {}, optax.identity())
PARAMS = jax.ShapeDtypeStruct((256, 512), jnp.float32)
BATCH = {"x": jax.ShapeDtypeStruct((32, 256), jnp.float32)}


def test_peaks_by_name():
    kinds = {"NVIDIA H100 80GB HBM3": 989e12, "NVIDIA H100 PCIe": 756e12, "TPU v5 lite": 197e12, "TPU v5p": 459e12}
    for kind, flops in {**kinds, "cpu": None}.items():
        assert hardware.peak_flops(types.SimpleNamespace(device_kind=kind)) == flops


def test_flops_are_those_of_the_matrix_products():
    counted = rows.count_flops(EXPERIMENT, PARAMS, BATCH)
    # Forward and the gradient in the parameters; the inputs need none. Entrywise work adds a little.
    assert counted == pytest.approx(2 * 2 * 256 * 512, rel=0.02)


def test_a_row_at_a_known_peak(monkeypatch):
    monkeypatch.setattr(hardware, "peak_flops", lambda device: 1e9)
    monkeypatch.setattr(hardware, "memory_in_use", lambda: 123)
    config = toy_config(mesh={"data": 8})
    setup = types.SimpleNamespace(config=config, mesh=mesh_lib.make(config), experiment=EXPERIMENT)
    made = rows.Performance(setup, PARAMS, BATCH)
    interval = MetricsSinceRow({"loss": np.zeros((1, 0), np.float32)})
    assert set(made.row(interval).values()) == {None, 123}
    interval.step_seconds = [0.01, 0.01, 0.04]
    row = made.row(interval)
    assert row["step_seconds"] == 0.01
    assert row["images_per_second"] == 32 / 0.02
    assert row["mfu"] == pytest.approx(32 * 2 * 2 * 256 * 512 / 0.01 / 8e9, rel=0.02)
    assert row["peak_memory_bytes"] == 123


@pytest.fixture
def clock(monkeypatch):
    """Seconds, to be set."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_time_left_counts_from_where_this_launch_began(clock, capsys):
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


@pytest.mark.parametrize(("first_call", "left"), [(12.0, "1 a second, 15:00 left"), (50.0, "1.49 s each, 22:21 left")])
def test_what_the_first_call_alone_has_to_do_is_counted_only_where_it_matters_little(clock, capsys, first_call, left):
    progress = Progress((), Plan(10, 1000, 1, 100, 100, "step"), 0, print)
    clock[0] = first_call
    progress.warm(1)
    clock[0] += 99.0
    progress.show({"step": 100, "diverged": [False], "train_loss": [1.0]})
    assert capsys.readouterr().out.endswith(f"  {left}\n")


def test_there_is_no_time_left_to_tell_before_a_second_call(clock, capsys):
    progress = Progress((), Plan(10, 1000, 100, 100, 100, "step"), 0, print)
    clock[0] = 5.0
    progress.warm(100)
    progress.show({"step": 100, "diverged": [False], "train_loss": [1.0]})
    clock[0] = 15.0
    progress.show({"step": 200, "diverged": [False], "train_loss": [1.0]})
    assert (
        capsys.readouterr().out
        == "step  100/1000  train_loss 1\nstep  200/1000  train_loss 1  10 a second, 1:20 left\n"
    )
