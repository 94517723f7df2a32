"""Hard forwards, relaxed backwards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import hard_topk_mask, straight_through, topk_mask
from tests.ops import oracles

X = oracles.samples(40)


def relaxed(x):
    return topk_mask(x, 7, lam=1.0, p=4 / 3)


def estimator(x):
    return straight_through(hard_topk_mask(x, 7), relaxed(x))


def loss(function):
    return lambda x: jnp.sum(function(x) * jnp.arange(40.0))


pytestmark = pytest.mark.usefixtures("x64")


def test_the_value_is_hard_and_derivatives_are_relaxed():
    np.testing.assert_array_equal(estimator(X), oracles.hard(X, 7))
    found, expected = (
        jax.jit(lambda x, of=of: (jax.grad(loss(of))(x), jax.hessian(loss(of))(x)))(X) for of in (estimator, relaxed)
    )
    for one, other in zip(found, expected, strict=True):
        assert np.abs(other).max() > 1
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_elementwise_on_its_own():
    hard, soft = jnp.array([1.0, 0.0]), jnp.array([0.25, 0.75])
    value, tangent = jax.jvp(straight_through, (hard, soft), (jnp.array([7.0, 7.0]), jnp.array([2.0, 3.0])))
    assert value.tolist() == [1, 0]
    assert tangent.tolist() == [2, 3]
