"""The binary concrete distribution: its density against its cdf, its cdf against its samples and the textbook form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from ops.baselines.gates import binary_concrete

# One program each instead of one for each operation.
binary_concrete_cdf = jax.jit(binary_concrete.binary_concrete_cdf)
binary_concrete_pdf = jax.jit(binary_concrete.binary_concrete_pdf)
sample_binary_concrete = jax.jit(binary_concrete.sample_binary_concrete)

PARAMETERS = pytest.mark.parametrize(("log_alpha", "temperature"), [(0.0, 2 / 3), (-1.5, 0.3)])


def textbook_pdf(x, log_alpha, temperature):
    """Maddison et al. (2017), eq. 23, in NumPy."""
    alpha = np.exp(log_alpha)
    numerator = temperature * alpha * x ** (-temperature - 1) * (1 - x) ** (-temperature - 1)
    return numerator / (alpha * x**-temperature + (1 - x) ** -temperature) ** 2


@PARAMETERS
def test_density_is_that_of_the_paper_and_integrates_to_differences_of_the_cdf(x64, log_alpha, temperature):
    edges = np.linspace(0.02, 0.98, 7)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    starts, widths = edges[:-1, None], np.diff(edges)[:, None]
    pdf = np.asarray(binary_concrete_pdf(starts + widths * (nodes + 1) / 2, log_alpha, temperature=temperature))
    cdf = np.asarray(binary_concrete_cdf(edges, log_alpha, temperature=temperature))
    np.testing.assert_allclose((pdf * weights * widths / 2).sum(-1), np.diff(cdf), rtol=1e-11)
    x = np.linspace(0.001, 0.999, 101)
    density = binary_concrete_pdf(x, log_alpha, temperature=temperature)
    np.testing.assert_allclose(density, textbook_pdf(x, log_alpha, temperature), rtol=1e-11)


@PARAMETERS
def test_samples_follow_the_cdf(log_alpha, temperature):
    sample = sample_binary_concrete(jax.random.key(5), np.full(20_000, log_alpha, np.float32), temperature=temperature)
    cdf = lambda x: np.asarray(binary_concrete_cdf(x.astype(np.float32), log_alpha, temperature=temperature))  # noqa: E731
    assert scipy.stats.kstest(np.asarray(sample), cdf).pvalue > 0.01


def test_outside_of_the_interval():
    x = np.float32([-np.inf, -1.0, 0.0, 1.0, 2.0, np.inf, np.nan])
    np.testing.assert_array_equal(binary_concrete_cdf(x, 0.3, temperature=0.5), [0, 0, 0, 1, 1, 1, np.nan])
    np.testing.assert_array_equal(binary_concrete_pdf(x, 0.3, temperature=0.5), [0, 0, 0, 0, 0, 0, np.nan])


@pytest.mark.parametrize("function", [binary_concrete_cdf, binary_concrete_pdf])
def test_finite_with_finite_gradients_however_extreme(function):
    extreme = np.float32([0, 1e-30, 1e-3, 0.5, 1 - 6e-8, 1])
    log_alpha, x = map(np.ravel, np.meshgrid(np.linspace(-200, 200, 81, dtype=np.float32), extreme))
    total = lambda x, log_alpha, temperature: function(x, log_alpha, temperature=temperature).sum()  # noqa: E731
    value, gradient = jax.jit(jax.value_and_grad(total, (1, 2)))(x, log_alpha, 0.66)
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in gradient)


def test_far_tails_keep_their_digits():
    cdf = binary_concrete_cdf(np.float32(1e-20), 20.0, temperature=0.5)
    np.testing.assert_allclose(cdf, 1e-10 * np.exp(-20), rtol=1e-5)
    np.testing.assert_allclose(  # where the textbook form overflows in float32
        binary_concrete_pdf(np.float32(1e-20), 20.0, temperature=0.5), textbook_pdf(1e-20, 20.0, 0.5), rtol=1e-5
    )


def test_narrow_floats_keep_their_dtype_and_are_computed_wide():
    x = np.array([0.25, 0.75], jnp.bfloat16)
    density = binary_concrete_pdf(x, 0.5, temperature=0.7)
    assert density.dtype == jnp.bfloat16
    wide = np.asarray(binary_concrete_pdf(x.astype(np.float32), 0.5, temperature=0.7))
    np.testing.assert_array_equal(density, wide.astype(x.dtype))
