"""Binary and hard concrete gates: densities against cdfs, cdfs against samples and the textbook form."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from ops.baselines import gates as module
from ops.baselines.gates import HIGH, LOW

# One program each instead of one for each operation.
binary_concrete_cdf, binary_concrete_pdf = jax.jit(module.binary_concrete_cdf), jax.jit(module.binary_concrete_pdf)
hard_concrete_cdf, hard_concrete_pdf = jax.jit(module.hard_concrete_cdf), jax.jit(module.hard_concrete_pdf)


def textbook_pdf(x, log_alpha, temperature):
    """Maddison et al. (2017), eq. 23, in NumPy."""
    alpha = np.exp(log_alpha)
    numerator = temperature * alpha * x ** (-temperature - 1) * (1 - x) ** (-temperature - 1)
    return numerator / (alpha * x**-temperature + (1 - x) ** -temperature) ** 2


def test_density_matches_paper_and_cdf(x64):
    log_alpha, temperature = -1.5, 0.3
    edges = np.linspace(0.02, 0.98, 7)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    starts, widths = edges[:-1, None], np.diff(edges)[:, None]
    pdf = np.asarray(binary_concrete_pdf(starts + widths * (nodes + 1) / 2, log_alpha, temperature=temperature))
    cdf = np.asarray(binary_concrete_cdf(edges, log_alpha, temperature=temperature))
    np.testing.assert_allclose((pdf * weights * widths / 2).sum(-1), np.diff(cdf), rtol=1e-11)
    x = np.linspace(0.001, 0.999, 101)
    density = binary_concrete_pdf(x, log_alpha, temperature=temperature)
    np.testing.assert_allclose(density, textbook_pdf(x, log_alpha, temperature), rtol=1e-11)


def test_far_tails_keep_their_digits():
    cdf = binary_concrete_cdf(np.float32(1e-20), 20.0, temperature=0.5)
    np.testing.assert_allclose(cdf, 1e-10 * np.exp(-20), rtol=1e-5)
    np.testing.assert_allclose(  # where the textbook form overflows in float32
        binary_concrete_pdf(np.float32(1e-20), 20.0, temperature=0.5), textbook_pdf(1e-20, 20.0, 0.5), rtol=1e-5
    )


def test_where_deterministic_gates_shut():
    edge = math.log(-LOW / HIGH)
    gates = np.asarray(module.deterministic_gates(np.float32([-50.0, edge - 1e-3, edge + 1e-3, 0.0, 50.0])))
    np.testing.assert_array_equal(gates > 0, [False, False, True, True, True])
    np.testing.assert_allclose(gates[3:], [0.5, 1.0], atol=1e-6)


def chances(log_alpha, temperature):
    """That a gate is 0, that it is not, and that it is 1."""
    functions = module.probability_zero, module.probability_open, module.probability_one
    return [float(function(log_alpha, temperature=temperature)) for function in functions]


def test_gates_follow_the_cdf():
    temperature = 0.4
    gates = np.asarray(
        module.sample_gates(jax.random.key(2), np.full(20_000, 0.4, np.float32), temperature=temperature)
    )
    shut, opened, full = chances(np.float32(0.4), temperature)
    shares = [(gates == 0).mean(), (gates != 0).mean(), (gates == 1).mean()]
    np.testing.assert_allclose(shares, [shut, opened, full], atol=4 * math.sqrt(0.25 / 20_000))
    # Given that a gate is neither 0 nor 1, its distribution is continuous, as the test of Kolmogorov and Smirnov wants.
    cdf = lambda z: (np.asarray(hard_concrete_cdf(z, 0.4, temperature=temperature)) - shut) / (1 - shut - full)  # noqa: E731
    assert scipy.stats.kstest(gates[(gates > 0) & (gates < 1)], cdf).pvalue > 0.01


def test_density_and_the_two_ends_add_up(x64):
    temperature = 2 / 3
    nodes, weights = np.polynomial.legendre.leggauss(60)
    edges = np.linspace(0.0, 1.0, 5)
    starts, widths = edges[:-1, None], np.diff(edges)[:, None]
    density = np.asarray(hard_concrete_pdf(starts + widths * (nodes + 1) / 2, 0.7, temperature=temperature))
    parts = (density * weights * widths / 2).sum(-1)
    cdf = np.asarray(hard_concrete_cdf(edges, 0.7, temperature=temperature))
    shut, opened, full = chances(np.float64(0.7), temperature)
    np.testing.assert_allclose(parts[:-1], np.diff(cdf)[:-1], rtol=1e-10)  # the last one jumps by the mass at 1
    assert shut + parts.sum() + full == pytest.approx(1.0, abs=1e-10)
    assert cdf[0] == pytest.approx(shut, abs=1e-14)
    assert shut + opened == pytest.approx(1.0, abs=1e-14)


def test_density_and_cdf_outside():
    x = np.float32([-np.inf, -1.0, 0.0, 1.0, 2.0, np.inf, np.nan])
    np.testing.assert_array_equal(binary_concrete_cdf(x, 0.3, temperature=0.5), [0, 0, 0, 1, 1, 1, np.nan])
    np.testing.assert_array_equal(binary_concrete_pdf(x, 0.3, temperature=0.5), [0, 0, 0, 0, 0, 0, np.nan])
    z = np.float32([-np.inf, -0.05, 1.0, 1.05, np.inf, np.nan])
    np.testing.assert_array_equal(hard_concrete_pdf(z, 0.0), [0, 0, 0, 0, 0, np.nan])
    np.testing.assert_array_equal(hard_concrete_cdf(z, 0.0), [0, 0, 1, 1, 1, np.nan])


def test_penalty_counts_the_gates_of_a_model():
    model = {"a": np.float32([[-50.0, 50.0], [50.0, 0.0]]), "b": [np.array([50.0, -50.0], jnp.bfloat16)]}
    penalty = module.l0_penalty(model)
    assert penalty.dtype == jnp.float32
    assert float(penalty) == pytest.approx(3 + float(module.probability_open(np.float32(0.0))), abs=1e-5)
    assert float(module.l0_penalty({})) == 0.0
    # Adding up in bfloat16 would stop at 256.
    assert float(module.l0_penalty(np.full(4096, 50.0, jnp.bfloat16))) == 4096.0


def test_extreme_gates_have_finite_gradients():
    extreme = np.resize(np.float32([0, 1e-30, 1e-3, 0.5, 1 - 6e-8, 1]), 1001)

    def total(log_alpha, temperature):
        z = jnp.full_like(log_alpha, 0.3)
        return (
            module.binary_concrete_pdf(extreme, log_alpha, temperature=temperature).sum()
            + module.binary_concrete_cdf(extreme, log_alpha, temperature=temperature).sum()
            + module.hard_concrete_pdf(z, log_alpha, temperature=temperature).sum()
            + module.hard_concrete_cdf(z, log_alpha, temperature=temperature).sum()
            + module.probability_zero(log_alpha, temperature=temperature).sum()
            + module.probability_one(log_alpha, temperature=temperature).sum()
            + module.l0_penalty(log_alpha, temperature=temperature)
            + module.sample_gates(jax.random.key(0), log_alpha, temperature=temperature).sum()
        )

    value, gradients = jax.jit(jax.value_and_grad(total, (0, 1)))(np.linspace(-200, 200, 1001, dtype=np.float32), 0.5)
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in gradients)
