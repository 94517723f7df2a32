"""Hard concrete gates against the distribution that they are samples of."""

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from ops.baselines.gates import hard_concrete
from ops.baselines.gates.hard_concrete import HIGH, LOW


def compiled(function):
    """One program instead of one for each operation."""
    shape = {"temperature", "low", "high"} & set(inspect.signature(function).parameters)
    return jax.jit(function, static_argnames=tuple(shape))


deterministic_gates = compiled(hard_concrete.deterministic_gates)
hard_concrete_cdf = compiled(hard_concrete.hard_concrete_cdf)
hard_concrete_pdf = compiled(hard_concrete.hard_concrete_pdf)
l0_penalty = compiled(hard_concrete.l0_penalty)
probability_one = compiled(hard_concrete.probability_one)
probability_open = compiled(hard_concrete.probability_open)
probability_zero = compiled(hard_concrete.probability_zero)
sample_gates = compiled(hard_concrete.sample_gates)


def test_gates_are_in_0_1_and_reach_both_ends():
    gates = np.asarray(sample_gates(jax.random.key(1), np.zeros(10_000, np.float32)))
    assert (float(gates.min()), float(gates.max())) == (0.0, 1.0)
    assert 0.1 < float(((gates > 0) & (gates < 1)).mean()) < 0.9


def test_deterministic_gates_shut_at_the_odds_of_the_stretch():
    edge = math.log(-LOW / HIGH)
    gates = np.asarray(deterministic_gates(np.float32([-50.0, edge - 1e-3, edge + 1e-3, 0.0, 50.0])))
    np.testing.assert_array_equal(gates > 0, [False, False, True, True, True])
    np.testing.assert_allclose(gates[3:], [0.5, 1.0], atol=1e-6)


SHAPES = pytest.mark.parametrize(
    "shape", [{}, {"temperature": 0.4, "low": -0.3, "high": 1.05}], ids=["default", "narrow"]
)


@SHAPES
def test_gates_of_other_temperatures_and_stretches_follow_the_cdf(shape):
    gates = np.asarray(sample_gates(jax.random.key(2), np.full(20_000, 0.4, np.float32), **shape))
    error = 4 * math.sqrt(0.25 / 20_000)
    assert (gates == 0).mean() == pytest.approx(float(probability_zero(np.float32(0.4), **shape)), abs=error)
    assert (gates != 0).mean() == pytest.approx(float(probability_open(np.float32(0.4), **shape)), abs=error)
    assert (gates == 1).mean() == pytest.approx(float(probability_one(np.float32(0.4), **shape)), abs=error)
    # Given that a gate is neither 0 nor 1, its distribution is continuous, as the test of Kolmogorov and Smirnov wants.
    shut, full = (float(probability(np.float32(0.4), **shape)) for probability in (probability_zero, probability_one))
    cdf = lambda z: (np.asarray(hard_concrete_cdf(z, 0.4, **shape)) - shut) / (1 - shut - full)  # noqa: E731
    assert scipy.stats.kstest(gates[(gates > 0) & (gates < 1)], cdf).pvalue > 0.01


@SHAPES
def test_density_and_the_two_ends_add_up(x64, shape):
    nodes, weights = np.polynomial.legendre.leggauss(60)
    edges = np.linspace(0.0, 1.0, 5)
    starts, widths = edges[:-1, None], np.diff(edges)[:, None]
    density = np.asarray(hard_concrete_pdf(starts + widths * (nodes + 1) / 2, 0.7, **shape))
    parts = (density * weights * widths / 2).sum(-1)
    cdf = np.asarray(hard_concrete_cdf(edges, 0.7, **shape))
    shut, full = (float(probability(np.float64(0.7), **shape)) for probability in (probability_zero, probability_one))
    np.testing.assert_allclose(parts[:-1], np.diff(cdf)[:-1], rtol=1e-10)  # the last one jumps by the mass at 1
    assert shut + parts.sum() + full == pytest.approx(1.0, abs=1e-10)
    assert cdf[0] == pytest.approx(shut, abs=1e-14)
    assert shut + float(probability_open(np.float64(0.7), **shape)) == pytest.approx(1.0, abs=1e-14)


def test_density_and_cdf_outside():
    z = np.float32([-np.inf, -0.05, 1.0, 1.05, np.inf, np.nan])
    np.testing.assert_array_equal(hard_concrete_pdf(z, 0.0), [0, 0, 0, 0, 0, np.nan])
    np.testing.assert_array_equal(hard_concrete_cdf(z, 0.0), [0, 0, 1, 1, 1, np.nan])


def test_penalty_counts_the_gates_of_a_model():
    model = {"a": np.float32([[-50.0, 50.0], [50.0, 0.0]]), "b": [np.array([50.0, -50.0], jnp.bfloat16)]}
    penalty = l0_penalty(model)
    assert penalty.dtype == jnp.float32
    assert float(penalty) == pytest.approx(3 + float(probability_open(np.float32(0.0))), abs=1e-5)
    assert float(l0_penalty({})) == 0.0


def test_penalty_in_bfloat16_adds_up_in_float32():
    # 4096 of them: adding in bfloat16 would stop at 256.
    assert float(l0_penalty(np.full(4096, 50.0, jnp.bfloat16))) == 4096.0


def test_all_gradients_are_finite_however_extreme_the_gate():
    def total(log_alpha, temperature):
        z = jnp.full_like(log_alpha, 0.3)
        return (
            hard_concrete.hard_concrete_pdf(z, log_alpha, temperature=temperature).sum()
            + hard_concrete.hard_concrete_cdf(z, log_alpha, temperature=temperature).sum()
            + hard_concrete.probability_zero(log_alpha, temperature=temperature).sum()
            + hard_concrete.probability_one(log_alpha, temperature=temperature).sum()
            + hard_concrete.l0_penalty(log_alpha, temperature=temperature)
            + hard_concrete.sample_gates(jax.random.key(0), log_alpha, temperature=temperature).sum()
        )

    gradients = jax.jit(jax.grad(total, (0, 1)))(np.linspace(-200.0, 200.0, 1001, dtype=np.float32), 0.5)
    assert all(np.isfinite(leaf).all() for leaf in gradients)
