"""Step times, rates and utilisation, of hardware that the tests make up."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.core.record import hardware
from experiments.core.training import mesh as mesh_lib
from experiments.core.training import performance
from experiments.core.training.experiment import Experiment
from experiments.core.training.stretch import Stretch
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
    counted = performance.count_flops(EXPERIMENT, PARAMS, BATCH)
    # Forward and the gradient in the parameters; the inputs need none. Entrywise work adds a little.
    assert counted == pytest.approx(2 * 2 * 256 * 512, rel=0.02)


def test_a_row_at_a_known_peak(monkeypatch):
    monkeypatch.setattr(hardware, "peak_flops", lambda device: 1e9)
    monkeypatch.setattr(hardware, "memory_in_use", lambda: 123)
    mesh = mesh_lib.make(toy_config(mesh={"data": 8}))
    made = performance.Performance.of(EXPERIMENT, mesh, PARAMS, BATCH, 1)
    assert made.why_no_mfu is None
    interval = Stretch({"loss": np.zeros((1, 0), np.float32)})
    assert set(made.row(interval).values()) == {None, 123}
    interval.step_seconds = [0.01, 0.01, 0.04]
    row = made.row(interval)
    assert row["step_seconds"] == 0.01
    assert row["images_per_second"] == 32 / 0.02
    assert row["mfu"] == pytest.approx(32 * 2 * 2 * 256 * 512 / 0.01 / 8e9, rel=0.02)
    assert row["peak_memory_bytes"] == 123
