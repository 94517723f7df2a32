"""The relaxed magnitude operator against oracles of other kinds."""

import jax
import numpy as np
import pytest

from ops import hard_topk_mag, topk_mag
from tests.ops import oracles

PS = [1.2, 4 / 3, 1.7, 2.0]
KS, LAMS = (a.ravel() for a in np.meshgrid([1.0, 3.0, 7.6, 20.0, 39.5], [0.01, 0.1, 1.0, 10.0], indexing="ij"))
X = oracles.samples((KS.size, 40))


@pytest.mark.parametrize(("p", "debias"), [*((p, False) for p in PS), (4 / 3, True), (2.0, True)])
def test_agrees_with_pooling_in_float64(x64, p, debias):
    expected = oracles.by_rows(lambda *row: oracles.pooled(*row, p, "magnitude", debias), X, KS, LAMS)
    np.testing.assert_allclose(topk_mag(X, KS, lam=LAMS, p=p, debias=debias), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_agrees_with_pooling_in_float32(p):
    x, k, lam = X.astype(np.float32), KS.astype(np.float32), np.maximum(LAMS, 0.1).astype(np.float32)
    expected = oracles.by_rows(lambda *row: oracles.pooled(*row, p, "magnitude"), x, k, lam)
    np.testing.assert_allclose(topk_mag(x, k, lam=lam, p=p), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_agrees_with_a_generic_convex_solver(x64, p):
    x, k, lam = oracles.samples((4, 6), seed=1), np.array([1.0, 2.0, 3.5, 5.0]), np.array([0.3, 1.0, 2.0, 5.0])
    expected = oracles.by_rows(lambda *row: oracles.generic(*row, p, "magnitude"), x, k, lam)
    np.testing.assert_allclose(topk_mag(x, k, lam=lam, p=p), expected, atol=5e-5)


def test_long_vectors(x64):
    x = oracles.samples((2, 20_000))
    k, lam = np.array([1000.0, 12_345.6]), np.array([0.1, 3.0])
    expected = oracles.by_rows(lambda *row: oracles.pooled(*row, kind="magnitude"), x, k, lam)
    np.testing.assert_allclose(topk_mag(x, k, lam=lam), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_debiased_keeps_fully_selected_entries_exactly(p):
    x = X.astype(np.float32)
    y = np.asarray(topk_mag(x, 7, lam=0.01, p=p, debias=True))
    kept = np.abs(x) > np.sort(np.abs(x), -1)[:, -3:-2]  # the first two: 7 are asked for
    assert kept.sum() == 2 * len(x)
    np.testing.assert_array_equal(y[kept], x[kept])
    assert np.all((y == 0).sum(-1) >= 25)


def test_paper_shrinks_fully_selected_entries(x64):
    x = np.array([[4.0, -3.0, 0.5, 0.1]])
    np.testing.assert_allclose(topk_mag(x, 2, lam=0.25), [[3.2, -2.4, 0, 0]], rtol=1e-15)


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_limits_of_lam(x64, p):
    hard = hard_topk_mag(X, 7)
    np.testing.assert_allclose(topk_mag(X, np.full(len(X), 7.0), lam=1e-12, p=p), hard, atol=1e-10)
    np.testing.assert_allclose(topk_mag(X, np.full(len(X), 7.0), lam=1e12, p=p, debias=True), X, atol=1e-9)


def test_error_bound_of_section_5(x64):
    lam = 1e-4
    error = np.abs(topk_mag(X, 7, lam=lam) - hard_topk_mag(X, 7)).max(-1)
    assert np.all(error > 0)
    assert np.all(error <= lam * np.abs(X).max(-1) * (1 + 1e-12))


@pytest.mark.parametrize("p", [1.2, 2.0])
def test_adversarial_rows_are_solved_exactly(x64, p):
    n = 40
    x = np.stack(
        [
            np.r_[1e30, np.linspace(0, 1, n - 1)],
            10.0 ** -np.arange(n),
            np.geomspace(1e-20, 1e20, n),
            np.r_[np.zeros(n - 6), 1e6 + np.arange(6) / 8],
            np.r_[np.zeros(n - 4), 1.0, -1.0, 2.0, 3.0],  # fewer non-zeros than k
            np.repeat([0.0, 0.1, -0.2, 5.0], n // 4),
            np.full(n, -3.0),
            np.linspace(-3, 3, n) ** 9,
        ]
    )
    expected = oracles.by_rows(lambda *row: oracles.pooled(*row, p, "magnitude"), x, 5.5, 0.25)
    y = topk_mag(x, 5.5, lam=0.25, p=p)
    np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-12 if p == 2 else 1e-9)


def test_zero_vector_stays_zero():
    assert np.all(np.asarray(topk_mag(np.zeros((3, 8), np.float32), 3, p=4 / 3)) == 0)


@pytest.mark.parametrize("p", [2.0, 4 / 3])
def test_derivative_in_lam_where_lam_is_0(x64, p):
    x = np.array([1.0, -3.0, 2.0, 0.5])
    found = jax.jacfwd(lambda lam: topk_mag(x, 2, lam=lam, p=p))(0.0)
    np.testing.assert_allclose(found, [0, 3 ** (p - 1), -(2 ** (p - 1)), 0], rtol=1e-12)  # y + lam y^(p - 1) = x
    backwards = jax.jacrev(lambda lam: topk_mag(x, 2, lam=lam, p=p))(0.0)
    np.testing.assert_allclose(backwards, found, rtol=1e-12)
    in_x = jax.jacfwd(lambda x, lam: topk_mag(x, 2, lam=lam, p=p))(x, np.float64(0))
    np.testing.assert_allclose(in_x, np.diag([0, 1, 1, 0]), rtol=1e-12)
    assert np.isposinf(jax.jit(lambda lam: topk_mag([np.inf, 1.0, 0.0], 2, lam=lam, p=p))(0.0)[0])
