"""The oracles agree with one another, so that what they say of the operators is worth something."""

import numpy as np
import pytest

from tests.ops import oracles

X = oracles.samples(7, seed=3)


@pytest.mark.parametrize("p", [1.2, 4 / 3, 1.7, 2.0])
@pytest.mark.parametrize("kind", ["mask", "magnitude"])
@pytest.mark.parametrize("k", [1, 2.5, 4])
def test_pooling_agrees_with_a_generic_convex_solver(p, kind, k):
    pooled = oracles.pooled(X, k, 0.7, p, kind)
    np.testing.assert_allclose(pooled, oracles.generic(X, k, 0.7, p, kind), atol=2e-5)


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_bisection_agrees_with_pooling(p):
    x = oracles.samples(60)
    np.testing.assert_allclose(oracles.bisected(x, 11, 0.5, p), oracles.pooled(x, 11, 0.5, p), atol=1e-12)
