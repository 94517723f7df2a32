"""What regularisation leaves of a fully selected entry."""

import jax
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import optimize

from ops.scalar.shrinkage import shrink


@pytest.mark.parametrize("p", [1.05, 1.2, 4 / 3, 1.5, 1.7, 2.0])
def test_solves_its_equation(x64, p):
    s, lam = (a.ravel() for a in np.meshgrid(np.geomspace(1e-6, 1e6, 13), np.geomspace(1e-4, 1e4, 9)))
    expected = [
        optimize.brentq(
            lambda y, s=s, lam=lam: y + lam * y ** (p - 1) - s, 0, s, xtol=1e-300, rtol=1e-14, maxiter=10_000
        )
        for s, lam in zip(s, lam, strict=True)
    ]
    np.testing.assert_allclose(shrink(s, lam, p), expected, rtol=1e-9, atol=1e-100)


@pytest.mark.parametrize("p", [4 / 3, 1.7])
def test_derivatives_are_finite_at_zero(x64, p):
    value, slope = jax.value_and_grad(shrink)(0.0, 0.5, p)
    assert (value, slope) == (0, 0)


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_derivatives_match_differences(x64, p):
    check_grads(jax.jit(lambda s, lam: shrink(s, lam, p)), (0.8, 0.5), 2)
