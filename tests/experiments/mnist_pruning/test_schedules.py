"""Schedules at their ends and on the way."""

import jax.numpy as jnp
import ml_collections
import pytest

from experiments.mnist_pruning.schedules import cubic_density, lam_schedule, linear_density


def lam(schedule):
    return lam_schedule(ml_collections.ConfigDict({"schedule": schedule, "start": 3.0, "end": 1e-3}))


@pytest.mark.parametrize("progress", [0.0, 0.3, 1.0])
def test_constant_lam_stays_at_the_start(progress):
    assert float(lam("constant")(jnp.float32(progress))) == 3.0


@pytest.mark.parametrize(("progress", "value"), [(0.0, 3.0), (0.5, 0.003**0.5), (1.0, 1e-3)])
def test_geometric_lam(progress, value):
    assert float(lam("geometric")(jnp.float32(progress))) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("schedule", [linear_density, cubic_density])
def test_density_falls_from_1_to_the_target(schedule):
    density = schedule(0.1)(jnp.linspace(0.0, 1.0, 11))
    assert float(density[0]) == 1.0
    assert float(density[-1]) == pytest.approx(0.1)
    assert bool((jnp.diff(density) < 0).all())
