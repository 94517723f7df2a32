"""Schedules at their ends and on the way."""

import jax.numpy as jnp
import pytest

from experiments.mnist_pruning.schedules import cubic_density, linear_density


@pytest.mark.parametrize("schedule", [linear_density, cubic_density])
def test_density_falls_from_1_to_the_target(schedule):
    density = schedule(0.1)(jnp.linspace(0.0, 1.0, 11))
    assert float(density[0]) == 1.0
    assert float(density[-1]) == pytest.approx(0.1)
    assert bool((jnp.diff(density) < 0).all())
