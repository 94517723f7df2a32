"""The relaxed mask against oracles of other kinds."""

import jax.numpy as jnp
import numpy as np
import pytest

from ops import topk_mask
from tests.ops import oracles

PS = [1.2, 4 / 3, 1.7, 2.0]
# One row per pair, so that a single compilation serves them all.
KS, LAMS = (a.ravel() for a in np.meshgrid([1.0, 3.0, 7.6, 20.0, 39.5], [0.01, 0.1, 1.0, 10.0], indexing="ij"))
X = oracles.samples((KS.size, 40))


@pytest.mark.parametrize("p", PS)
def test_agrees_with_pooling_in_float64(x64, p):
    expected = oracles.by_rows(lambda *row: oracles.pooled(*row, p=p), X, KS, LAMS)
    np.testing.assert_allclose(topk_mask(X, KS, lam=LAMS, p=p), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_agrees_with_pooling_in_float32(p):
    x = X.astype(np.float32)
    k, lam = KS.astype(np.float32), np.maximum(LAMS, 0.1).astype(np.float32)
    expected = oracles.by_rows(lambda *row: oracles.pooled(*row, p=p), x, k, lam)
    np.testing.assert_allclose(topk_mask(x, k, lam=lam, p=p), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("p", [1.2, 2.0])
def test_agrees_with_a_generic_convex_solver(x64, p):
    x, k, lam = oracles.samples((4, 6), seed=1), np.array([1.0, 2.0, 3.5, 5.0]), np.array([0.3, 1.0, 2.0, 5.0])
    expected = oracles.by_rows(lambda *row: oracles.generic(*row, p), x, k, lam)
    np.testing.assert_allclose(topk_mask(x, k, lam=lam, p=p), expected, atol=2e-5)


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_long_vectors(x64, p):
    x = oracles.samples((2, 20_000))
    k, lam = np.array([1000.0, 12_345.6]), np.array([0.1, 3.0])
    expected = oracles.by_rows(lambda *row: oracles.pooled(*row, p=p), x, k, lam)
    np.testing.assert_allclose(topk_mask(x, k, lam=lam, p=p), expected, rtol=0, atol=1e-10)


def test_is_exactly_sparse():
    mask = np.asarray(topk_mask(X.astype(np.float32), 7, lam=0.1))
    assert np.all((mask == 0).sum(-1) >= 25)
    assert np.all((mask == 1).sum(-1) >= 3)
    assert np.any((mask > 0) & (mask < 1))


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_maximises_its_objective(x64, p):
    # The mask maximises <x, y> - lam / p * |y|_p^p over its polytope: no vertex nor any mean of vertices does better.
    rng = np.random.default_rng(0)
    x, mask = X[5], np.asarray(topk_mask(X, 7, lam=1.0, p=p))[5]
    corners = (rng.random((200, 40)).argsort(-1) < 7).astype(float)
    others = np.concatenate([corners, 0.9 * mask + 0.1 * corners])

    def value(y):
        return y @ x - np.sum(y**p, -1) / p

    assert value(mask) > value(others).max()


def test_large_and_small_lam_have_their_limits(x64):
    np.testing.assert_allclose(topk_mask(X, KS, lam=1e12), np.broadcast_to(KS[:, None] / 40, X.shape), atol=1e-10)
    hard = np.stack([oracles.hard(x, 7) for x in X])
    np.testing.assert_array_equal(topk_mask(X, np.full(len(X), 7.0), lam=1e-12), hard)


def test_adversarial_rows_are_solved_exactly(x64):
    n = 40
    rows = {
        "outlier": np.r_[1e30, np.linspace(0, 1, n - 1)],
        "outlier below": np.r_[-1e30, np.linspace(0, 1, n - 1)],
        "both": np.r_[1e30, -1e30, np.linspace(0, 1, n - 2)],
        "geometric": 10.0 ** -np.arange(n),
        "geometric up": np.geomspace(1e-20, 1e20, n),
        "two clusters": np.r_[np.zeros(n - 6), 1e6 + np.arange(6) / 8],
        "duplicates": np.repeat([0.0, 0.1, 0.2, 5.0], n // 4),
        "one above": np.r_[np.zeros(n - 1), 1e-3],
        "far from 0": 1e9 + np.linspace(0, 1, n),
        "cubes": np.linspace(-3, 3, n) ** 9,
    }
    x = np.stack(list(rows.values()))
    for p in (1.2, 2.0):
        mask = topk_mask(x, 5.5, lam=0.25, p=p)
        expected = oracles.by_rows(lambda *row, p=p: oracles.pooled(*row, p=p), x, 5.5, 0.25)
        # Of values near 1e9 the oracle knows the difference to gamma to about 1e-7.
        tolerance = np.array([{"far from 0": 1e-5, "two clusters": 1e-7}.get(name, 1e-9) for name in rows])
        error = np.abs(mask - expected).max(-1)
        assert np.all(error <= tolerance), error
        np.testing.assert_allclose(jnp.sum(mask, -1), np.full(len(x), 5.5), rtol=1e-12)


@pytest.mark.parametrize("p", [1.2, 2.0])
def test_is_exactly_hard_where_nothing_is_partly_selected(p):
    x = oracles.samples((4000, 5), seed=8, dtype=np.float32)
    ordered = -np.sort(-x, axis=1).astype(np.float64)
    for lam in (1e-3, 0.1, 0.5):
        wide = ordered[:, 1] - ordered[:, 2] > lam * (1 + 1e-5)
        assert wide.sum() > 500
        mask = np.asarray(topk_mask(x, 2, lam=np.float32(lam), p=p))[wide]
        np.testing.assert_array_equal(mask, np.stack([oracles.hard(row, 2) for row in x[wide]]))
