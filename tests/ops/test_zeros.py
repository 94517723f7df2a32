"""Entries that are 0: how they move where there is room for them, against NumPy in float64."""

import functools
import itertools

import jax
import numpy as np

from ops import topk_mag
from tests.ops import oracles

D = np.array([1.0, -0.5, 0.3, 0.2])


def along(x, d, **options):
    """The derivative of the oracle along ``d``, from the right."""
    pooled = functools.partial(oracles.pooled, kind="mag", **options)
    return (pooled(x + 1e-7 * d) - pooled(x)) / 1e-7


def test_for_p_2_the_derivative_at_0_is_a_mean_of_those_nearby(x64):
    """``y(a x) = a y(x)``: no linear function is the derivative. That given is one of Clarke's, and symmetric."""
    debias, beside = False, (3.0, -2.0)
    options = {"k": 2.0 + len(beside), "lam": 10.0, "p": 2.0, "debias": debias}
    x = np.r_[beside, np.zeros(4)]
    operator = functools.partial(topk_mag, **options)
    jacobians = jax.jit(jax.vmap(jax.jacobian(operator)))
    jacobian = jacobians(np.tile(x, (64, 1)))[0]
    np.testing.assert_allclose(jacobian, np.eye(len(x)) * (1 if debias else 1 / 11), atol=1e-15)
    # That of Clarke is a convex combination of Jacobians nearby, here averaged over permutations and signs.
    nearby, alike = [], []
    for signs in itertools.product([1, -1], repeat=4):
        nearby += [np.r_[beside, 1e-6 * np.roll([1.0, 0.9, 1e-3, 2e-3], i) * signs] for i in range(4)]
        alike += 4 * [np.r_[beside, 1e-6 * np.ones(4) * signs]]
    low, high = (jacobians(np.array(points)).mean(axis=0) for points in (nearby, alike))
    share = (jacobian[-1, -1] - low[-1, -1]) / (high[-1, -1] - low[-1, -1])
    assert 0 < share < 1
    np.testing.assert_allclose((1 - share) * low + share * high, jacobian, atol=1e-12)
    # Along one direction it is the operator of the direction.
    d = np.r_[np.zeros(len(beside)), D]
    moved = along(x, d, **options)[-4:]
    np.testing.assert_allclose(moved, oracles.pooled(D, 2.0, 10.0, 2.0, "mag", debias=debias), atol=1e-6)


def test_one_zero_alone_has_a_derivative_and_that_is_given(x64):
    """Also where there is room for a part of it."""
    x, k = [3.0, 0.0], 1.3
    options = {"lam": 10.0, "p": 1.5, "debias": True}
    gradient = jax.jit(jax.grad(lambda x: topk_mag(x, k, **options)[-1]))(np.array(x))
    d = np.r_[np.zeros(len(x) - 1), 1.0]
    np.testing.assert_allclose(gradient[-1], along(np.array(x), d, k=k, **options)[-1], atol=1e-3)


def test_in_k_it_moves_as_the_derivative_of_one_entry_does(x64):
    def slope(k, x):
        return jax.grad(lambda x: topk_mag(x, k, lam=10.0, debias=True)[0])(x)[0]

    at_zero, away = (jax.jit(jax.grad(slope))(0.3, np.array([x])) for x in (0.0, 0.7))
    np.testing.assert_allclose(at_zero, away, rtol=1e-12)
    assert away > 0.1
