"""Conjugates, norms and entropies against their definitions as minima and maxima."""

import functools
import itertools

import jax
import numpy as np
from scipy import optimize

from ops import (
    hard_topk_mag,
    k_support_norm,
    owl_norm,
    relaxed_topk_value,
    topk_conjugate,
    topk_mag,
    topk_mask,
)
from tests.ops import oracles

Y = np.abs(oracles.samples((6, 5)))
Y[2, 3:] = 0
K = np.array([1, 2, 4, 3, 5, 2.6])
CONJUGATES = {
    "half_square": lambda u: u**2 / 2,
    "exp": lambda u: u * np.log(np.maximum(u, 1e-300)),
}
SIGNED = Y * np.sign(oracles.samples((6, 5), 1))


def by_definition(y, k, conjugate):
    """Proposition 3: the least divergence from the polytope."""

    def objective(z):
        return np.sum(z * conjugate(y / z))

    found = optimize.minimize(
        objective,
        np.full(y.size, k / y.size),
        method="SLSQP",
        bounds=[(1e-9, 1)] * y.size,
        constraints={"type": "eq", "fun": lambda z: z.sum() - k},
        options={"ftol": 1e-15, "maxiter": 2000},
    )
    return found.fun


def test_proposition_3(x64):
    for phi, y in (("half_square", SIGNED), ("exp", Y)):
        expected = oracles.by_rows(lambda y, k, _, phi=phi: by_definition(np.abs(y), k, CONJUGATES[phi]), y, K, 0)
        np.testing.assert_allclose(topk_conjugate(y, K, phi=phi), expected, rtol=1e-6)
    by_density = topk_conjugate(SIGNED, density=[0.2, 0.4, 0.5, 0.6, 0.99, 1])
    np.testing.assert_array_equal(by_density, topk_conjugate(SIGNED, [1, 2, 2, 3, 4, 5]))


def test_proposition_4(x64):
    # The conjugate of sum(phi*) restricted to k-sparse vectors, over all supports of size k; then conjugated again.
    y, k = Y[0], 2
    supports = np.array([np.isin(np.arange(5), c) for c in itertools.combinations(range(5), k)])
    # max <x, y> - t over t >= sum of phi over every support
    found = optimize.minimize(
        lambda v: v[-1] - v[:-1] @ y,
        np.r_[np.log(y + 0.1), 10],
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda v: v[-1] - supports @ np.exp(v[:-1] - 1)},
        options={"ftol": 1e-14, "maxiter": 2000},
    )
    x = found.x[:-1]
    biconjugate = x @ y - np.max(supports @ np.exp(x - 1))
    np.testing.assert_allclose(topk_conjugate(np.tile(y, (6, 1)), np.full(6, k), phi="exp")[0], biconjugate, rtol=1e-6)


def test_proposition_2_value_equals_dual(x64):
    x, lam, p = SIGNED, 0.7, 4 / 3
    y = np.asarray(topk_mag(x, K, lam=lam, p=p))
    dual = (x * y).sum(-1) - np.asarray(topk_conjugate(y, K, phi="half_square")) - lam / p * (np.abs(y) ** p).sum(-1)
    np.testing.assert_allclose(relaxed_topk_value(x, K, phi="half_square", lam=lam, p=p), dual, rtol=1e-12)


def test_polytopes(x64):
    mask = np.asarray(topk_mask(SIGNED, K, lam=0.5))
    outside, negative = [1.1, 0.5, 0.4, 0, 0], [-0.1, 1.0, 0.1, 0, 0]
    for y, k, phi, expected in (
        (mask, K, "identity", 0),
        (mask * 0.999, K, "identity", np.inf),
        (-0.999 * mask, K, "abs", 0),
        (mask * 1.001, K, "abs", np.inf),
        (np.tile(outside, (6, 1)), 2, "identity", np.inf),
        (np.tile(negative, (6, 1)), 1, "exp", np.inf),
    ):
        np.testing.assert_array_equal(topk_conjugate(y, k, phi=phi), np.full(6, expected))


def test_k_support_norm_goes_from_l1_to_l2(x64):
    np.testing.assert_allclose(k_support_norm(SIGNED, 1), np.abs(SIGNED).sum(-1), rtol=1e-14)
    np.testing.assert_allclose(k_support_norm(SIGNED, 5), np.linalg.norm(SIGNED, axis=-1), rtol=1e-14)
    np.testing.assert_allclose(k_support_norm(hard_topk_mag(SIGNED, 3), 3), np.sort(Y**2)[:, -3:].sum(-1) ** 0.5)
    expected = 1e200 * np.asarray(k_support_norm(SIGNED, K))
    np.testing.assert_allclose(k_support_norm(1e200 * SIGNED.T, K, axis=0), expected)
    # Its dual norm is the l2 norm of the k largest.
    largest = np.sort(SIGNED**2)[:, ::-1] @ oracles.weights(5, 2)
    directions = oracles.samples((2000, 1, 5), 2)
    ratios = (directions * SIGNED).sum(-1) / np.asarray(k_support_norm(directions[:, 0], 2))[:, None]
    assert np.all(ratios.max(0) <= np.sqrt(largest) * (1 + 1e-12))
    assert np.all(ratios.max(0) >= 0.8 * np.sqrt(largest))


def test_derivatives(x64):
    rows = [0, 1, 5]
    oracles.check_derivatives(topk_conjugate, (SIGNED[rows], K[rows]), tolerance=1e-5)
    zeros = np.zeros((1, 5))
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda y: k_support_norm(y, 2).sum()))(zeros), zeros)


def test_negentropy_of_sparse_distributions(x64):
    sparse = np.array([0.25, 0.75, 0, 0, 0])
    np.testing.assert_allclose(
        topk_conjugate(sparse, 2, phi="exp"), np.sum(sparse[:2] * np.log(sparse[:2])), rtol=1e-14
    )
    np.testing.assert_allclose(topk_conjugate(np.full(5, 0.2), 2, phi="exp"), np.log(1 / 2), rtol=1e-14)


def test_owl_norm(x64):
    w = np.array([2, 1, 0.5, 0.5, 0])
    np.testing.assert_allclose(owl_norm(SIGNED, w), np.sort(Y)[:, ::-1] @ w, rtol=1e-14)
    np.testing.assert_allclose(owl_norm(SIGNED.T, oracles.weights(5, 2), axis=0), np.sort(Y)[:, -2:].sum(-1))


def test_nan_and_infinity_are_not_lost():
    y = np.array([[np.nan, 1, 0], [np.nan, 1, 2], [2, 1, 0], [np.inf, 1, 0], [np.inf, 1, 2]])
    y = np.concatenate([y, -y[3:]])
    for norm, finite in ((k_support_norm, 5**0.5), (functools.partial(topk_conjugate, phi="exp"), 2 * np.log(2))):
        found, gradients = jax.jit(jax.vmap(jax.value_and_grad(functools.partial(norm, k=2))))(y)
        np.testing.assert_allclose(found, [np.nan, np.nan, finite, *4 * [np.inf]], rtol=1e-6)
        assert np.isfinite(gradients[2:5]).all()
    both = [[np.inf, -np.inf, 1], [np.nan, np.inf, 1]]
    np.testing.assert_array_equal(topk_conjugate(both, 1, phi="identity"), [np.inf, np.nan])
