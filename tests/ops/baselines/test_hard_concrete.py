"""Hard concrete gates against the distribution that they are samples of."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops.baselines.hard_concrete import (
    HIGH,
    LOW,
    deterministic_gates,
    probability_open,
    sample_gates,
)


@pytest.mark.parametrize("log_alpha", [-3.0, -1.0, 0.0, 2.0])
def test_the_fraction_of_open_gates_is_the_probability(log_alpha):
    gates = sample_gates(jax.random.key(0), jnp.full(40_000, log_alpha))
    probability = float(probability_open(jnp.float32(log_alpha)))
    assert float((gates > 0).mean()) == pytest.approx(probability, abs=4 * math.sqrt(0.25 / 40_000))


def test_gates_are_in_0_1_and_reach_both_ends():
    gates = sample_gates(jax.random.key(1), jnp.zeros(10_000))
    assert (float(gates.min()), float(gates.max())) == (0.0, 1.0)
    assert 0.1 < float(((gates > 0) & (gates < 1)).mean()) < 0.9


def test_deterministic_gates_shut_at_the_odds_of_the_stretch():
    edge = math.log(-LOW / HIGH)
    gates = deterministic_gates(jnp.float32([-50.0, edge - 1e-3, edge + 1e-3, 0.0, 50.0]))
    np.testing.assert_array_equal(gates > 0, [False, False, True, True, True])
    np.testing.assert_allclose(gates[3:], [0.5, 1.0], atol=1e-6)


def test_gradients_are_finite_however_extreme_the_gate():
    def total(log_alpha):
        return sample_gates(jax.random.key(0), log_alpha).sum() + probability_open(log_alpha).sum()

    gradient = jax.grad(total)(jnp.linspace(-100.0, 100.0, 10_001))
    assert bool(jnp.isfinite(gradient).all())


def test_opening_a_gate_by_a_gradient_step_opens_it_more_often():
    gradient = jax.grad(lambda a: probability_open(a).mean())(jnp.zeros(4))
    assert bool((gradient > 0).all())
