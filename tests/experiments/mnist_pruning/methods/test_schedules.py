"""Schedules at their ends and on the way."""

import jax.numpy as jnp
import pytest

from experiments.mnist_pruning.methods.schedules import cubic_density, kept, linear_density
from tests.experiments.support import small_config


@pytest.mark.parametrize("schedule", [linear_density, cubic_density])
def test_density_falls_from_1_to_the_target(schedule):
    density = schedule(0.1)(jnp.linspace(0.0, 1.0, 11))
    assert float(density[0]) == 1.0
    assert float(density[-1]) == pytest.approx(0.1)
    assert bool((jnp.diff(density) < 0).all())


def test_the_cubic_density_is_zhu_and_guptas():
    density = cubic_density(0.1, 0.2, 0.7)(jnp.array([0.1, 0.2, 0.3, 0.45, 0.7, 0.9]))
    sparsity = [0.9 + (0.0 - 0.9) * (1 - t) ** 3 for t in (0.0, 0.0, 0.2, 0.5, 1.0, 1.0)]
    assert (1 - density).tolist() == pytest.approx(sparsity, abs=1e-6)


def test_the_number_kept_ends_where_a_constant_density_has_it():
    config = small_config("gradual", density=0.29)
    falling = kept(config, 100)
    assert [int(falling(jnp.float32(progress))) for progress in (0.0, 0.7, 1.0)] == [100, 29, 29]
    assert kept(small_config("hard", density=0.29), 100)(jnp.float32(0)) == 29
