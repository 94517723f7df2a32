"""The relaxed operator and its value, of nonlinearities built in and not, against a generic solver."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from ops import (
    Nonlinearity,
    relaxed_topk,
    relaxed_topk_value,
)
from ops.nonlinearities import EXP, HALF_SQUARE
from tests.ops import oracles

# Not built in: a kink at 0, and a slope that varies. Those that are built in are held to the oracle.
ELASTIC = Nonlinearity(
    "elastic",
    value=lambda x: jnp.abs(x) + 0.5 * x**2,
    slope=lambda x: 1 + x,
    curvature=jnp.ones_like,
    conjugate=lambda y: 0.5 * jnp.maximum(y - 1, 0) ** 2,
    even=True,
)

X = 1.5 * oracles.samples((6, 7))
K = np.array([1, 2, 3.5, 5, 3, 2])
LAM = np.array([0.1, 0.5, 1, 3, 10, 0.02])
OPTIONS = {"phi": ELASTIC, "p": 4 / 3}


@jax.jit
def everything(arguments, direction):
    """Operator and value, what both change by along a direction, and the value's gradient."""

    def total(x, k, lam):
        values = relaxed_topk_value(x, k, lam=lam, **OPTIONS)
        return values.sum(), values

    y, moved = jax.jvp(lambda x, k, lam: relaxed_topk(x, k, lam=lam, **OPTIONS), arguments, direction)
    (_, values), (x, k, lam) = jax.value_and_grad(total, (0, 1, 2), has_aux=True)(*arguments)
    risen = jnp.sum(x * direction[0], axis=1) + k * direction[1] + lam * direction[2]
    return (y, values), (moved, risen), x


def ordered(k, lam, x):
    """Operator and value of one vector: the isotonic problem of Propositions 5 and 6, handed to SLSQP."""
    p = OPTIONS["p"]
    order, q = np.argsort(-np.abs(x), kind="stable"), p / (p - 1)
    s, w = np.abs(x)[order], oracles.weights(x.size, k)

    def objective(v):
        taken = np.maximum(s - v, 0)
        return np.sum(taken**q * lam ** (1 - q) / q + w * (v + v**2 / 2)), w * (1 + v) - (taken / lam) ** (q - 1)

    steps = np.eye(x.size)[:-1] - np.eye(x.size)[1:]
    found = optimize.minimize(
        objective,
        0.9 * s,
        jac=True,
        method="SLSQP",
        bounds=[(0, bound) for bound in s],
        constraints={"type": "ineq", "fun": lambda v: steps @ v, "jac": lambda v: steps},
        options={"ftol": 1e-15, "maxiter": 3000},
    )
    y = np.empty_like(x)
    y[order] = (np.maximum(s - found.x, 0) / lam) ** (q - 1)
    return np.sign(x) * y, found.fun


def test_operator_and_value_against_solver(x64):
    expected = [ordered(k, lam, x) for x, k, lam in zip(X, K, LAM, strict=True)]
    (y, values), _, gradient = everything((X, K, LAM), (X, K, LAM))
    np.testing.assert_allclose(y, np.stack([row[0] for row in expected]), atol=2e-6)
    np.testing.assert_allclose(values, [row[1] for row in expected], rtol=1e-10)
    np.testing.assert_array_equal(gradient, y)


def test_derivatives_against_differences(x64):
    arguments = X, np.array([1.3, 2.2, 3.5, 4.7, 3.1, 2.4]), LAM
    tangents = oracles.samples(X.shape, 5), oracles.samples(K.shape, 6), LAM * oracles.samples(K.shape, 7)

    def at(step):
        return everything(tuple(a + step * b for a, b in zip(arguments, tangents, strict=True)), tangents)

    for found, right, left in zip(at(0)[1], at(1e-6)[0], at(-1e-6)[0], strict=True):
        assert np.abs(found).max() > 0.1
        np.testing.assert_allclose(found, (right - left) / 2e-6, rtol=1e-5, atol=1e-5)


def test_signed_mask_may_use_less_than_k(x64):
    x = np.array([3.0, -0.5, 0.2, 0.05, -0.1, 0, 0])

    @jax.jit
    def with_jacobian(k):
        return relaxed_topk(x, k, phi="abs", lam=1.0), jax.jacrev(lambda x: relaxed_topk(x, k, phi="abs", lam=1.0))(x)

    y, jacobian = with_jacobian(3.0)
    # Without the bound on their sum the entries would be clip(x / lam, -1, 1).
    np.testing.assert_allclose(y, [1, -0.5, 0.2, 0.05, -0.1, 0, 0], rtol=1e-14)
    np.testing.assert_allclose(jacobian[:5], np.diag([0, 1, 1, 1, 1.0, 0, 0])[:5], atol=1e-15)
    np.testing.assert_allclose(np.abs(with_jacobian(1.5)[0]), oracles.pooled(np.abs(x), 1.5, 1.0), atol=1e-14)


def test_lam_0_is_the_slope_of_the_selected(x64):
    s = np.abs(X)
    chosen = np.stack([oracles.hard(row, 3) for row in s])
    lam = np.where(np.arange(6) % 2, 0.0, 1e-9)  # not known when compiled, and 0 in some rows alone
    (y, value), _, _ = everything((X, np.full(6, 3.0), lam), (X, K, LAM))
    np.testing.assert_allclose(y, chosen * np.sign(X) * (1 + s), atol=1e-7)
    np.testing.assert_allclose(value, (chosen * (s + s**2 / 2)).sum(-1), rtol=1e-7)


def test_sum_of_the_largest(x64):
    expected = [np.sum(np.sort(x)[::-1] * oracles.weights(7, k)) for x, k in zip(X, K, strict=True)]
    np.testing.assert_allclose(relaxed_topk_value(X, K, lam=0), expected, rtol=1e-14)


@jax.jit
def exponential_values(x, k, lam, where):
    """Values, and how they grow with ``k``."""
    values, pull = jax.vjp(lambda k: relaxed_topk_value(x, k, phi=EXP, lam=lam, p=4 / 3, where=where), k)
    return values, *pull(jnp.ones_like(values))


def test_value_is_0_on_underflow():
    """exp(v - 1) at v = -190: less than any number, selected in full or in part. A value of nothing ignores k."""
    x = np.float32(2 * [[-2, -1, -1, 0, -2, 1, 7]] + 2 * [7 * [1]])
    where = np.tile([[True], [True], [False], [False]], 7)
    values, slopes = exponential_values(x, np.float32([3, 6, 0, 0]), np.float32([1e30, 1e30, 0, 1]), where)
    assert np.all(np.abs(values) < 1e-34)
    assert np.all(slopes[2:] == 0)


def test_absent_entries_stay_0_on_overflow():
    """The width is `lam exp(gamma)`, and 1 over it 0: which makes a NaN of an entry of -inf."""
    x = jnp.array([49.99, 50.0, -jnp.inf])
    y, slope = jax.jit(jax.value_and_grad(lambda x: relaxed_topk(x, 0, phi=EXP, lam=1e9, solver="kernel").sum()))(x)
    assert y == 0
    np.testing.assert_array_equal(slope, np.zeros(3))


def test_slope_in_lam_survives_overflow():
    x, lam = np.float32([-6.8e16, -2.8e23, 5e-4]), np.float32(1.8e-10)
    found = jax.jit(jax.grad(lambda lam: relaxed_topk_value(x, 1.5, lam=lam, p=1.5, phi="half_square")))(lam)
    np.testing.assert_allclose(found, -(2.8e23**1.5) / 1.5, rtol=1e-6)


def test_infinite_entry_has_infinite_value():
    x = np.float32([[0, np.inf, 1]] * 4 + [[np.nan, np.inf, 1]])
    k, lam = np.float32([1, 1.5, 2, 0, 1]), np.float32([1, 1, 0, 1, 1])
    for phi in ("identity", HALF_SQUARE):
        values = jax.jit(functools.partial(relaxed_topk_value, phi=phi))(x, k, lam=lam)
        np.testing.assert_array_equal(values, [np.inf, np.inf, np.inf, 0, np.nan])


FEW = oracles.samples((2, 4), 3, np.float32)


def test_borrowed_name_changes_nothing():
    borrowed = dataclasses.replace(HALF_SQUARE, name="abs")
    y = oracles.by_rows(functools.partial(oracles.pooled, kind="mag"), FEW, 2, 0.5)
    np.testing.assert_allclose(relaxed_topk(FEW, 2, phi=borrowed, lam=0.5), y, rtol=1e-5, atol=1e-6)


def test_one_of_a_user_is_passed_as_it_is():
    hard = relaxed_topk(FEW, 2, phi=ELASTIC, lam=0)
    expected = np.stack([oracles.hard(np.abs(row), 2) for row in FEW]) * (np.sign(FEW) + FEW)
    np.testing.assert_allclose(hard, expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"^phi must be a Nonlinearity or one of .*, got 'elastic'$"):
        relaxed_topk(FEW, 2, phi=ELASTIC.name)
