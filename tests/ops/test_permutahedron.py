"""Sort, rank, quantile and projection: golden values, permutations by brute force, the hull by a generic solver."""

import itertools

import jax
import numpy as np
import pytest

from ops.isotonic import Dual
from ops.permutahedron import lmo, project_permutahedron, soft_quantile, soft_rank, soft_sort
from tests.ops import oracles

pytestmark = pytest.mark.usefixtures("x64")

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))


def test_linear_maximisation_by_brute_force():
    found = lmo(X, W)
    for y, x, w in zip(np.asarray(found), X, W, strict=True):
        every = np.array(list(itertools.permutations(w)))
        np.testing.assert_allclose(y, every[np.argmax(every @ x)])
    ties, weights = np.tile([1.0, 2.0, 1.0, 0.0], (3, 1)), np.tile([5.0, 7.0, 6.0, 4.0], (3, 1))
    np.testing.assert_array_equal(lmo(ties, weights)[0], [6.0, 7.0, 5.0, 4.0])  # the first of equals first
    flags = np.array([[True, False, True, False]])
    np.testing.assert_array_equal(lmo(X, flags), lmo(X, flags.astype(float)))
    np.testing.assert_array_equal(jax.jit(jax.jacobian(lambda x: lmo(x, W[0])))(X[0]), np.zeros((4, 4)))


def test_projection_against_a_generic_solver():
    p = 1.5
    found = project_permutahedron(X, W, lam=0.7, p=p)
    for y, x, w in zip(np.asarray(found), X, W, strict=True):
        best = oracles.projected(x, w, 0.7, p)
        ours, least = (0.7 / p * np.sum(np.abs(z) ** p) - x @ z for z in (y, best))
        assert ours <= least + 1e-9
        np.testing.assert_allclose(y, best, atol=2e-4)


def test_golden_values():
    x = np.array([5.0, 1.0, 2.0])
    strengths = np.array([1.0, 0.1, 0.0])
    expected = [[5 / 3, 8 / 3, 11 / 3], [1, 2, 5], [1, 2, 5]]
    np.testing.assert_allclose(soft_sort(np.stack(3 * [x]), lam=strengths), expected)
    np.testing.assert_allclose(soft_rank(x, lam=2.0), [3, 1.25, 1.75])
    np.testing.assert_allclose(soft_rank(x, lam=2.0, descending=True), [1, 2.75, 2.25])
    np.testing.assert_allclose(soft_quantile(x, 0.5, lam=1.0), 8 / 3)


def test_quantiles_without_regularisation():
    x = RNG.normal(size=(9, 2))
    for q in (0.0, 0.3, 0.5, 1.0):
        np.testing.assert_allclose(soft_quantile(x, q, lam=0.0, axis=0), np.quantile(x, q, axis=0))
    q = np.array([0.1, 0.9])
    expected = [np.quantile(column, one) for column, one in zip(x.T, q, strict=True)]
    np.testing.assert_allclose(soft_quantile(x, q, lam=0.0, axis=0), expected)
    assert soft_quantile(np.array([3.0]), 0.4) == 3


def test_rank_is_not_moved_by_a_shift():
    x = RNG.normal(size=50)
    shifted, exact = np.asarray(soft_rank(np.stack([x + 1e6, x]), lam=np.array([0.3, 0.3])))
    np.testing.assert_allclose(shifted, exact, atol=1e-7)


def test_derivatives():
    rng = np.random.default_rng(1)
    x, w = 0.4 * rng.normal(size=(2, 7)), rng.uniform(1, 3, (2, 7))
    lam = np.array([0.8, 2.1])
    found = oracles.check_derivatives(
        lambda x, w, lam: project_permutahedron(x, w, lam=lam, p=4 / 3), (x, w, lam), 1e-5
    )
    assert np.unique(np.round(found, 6)).size > 4


def test_other_axes_dtypes_and_solvers():
    x = RNG.normal(size=(2, 3, 3))
    ranks = np.moveaxis(soft_rank(x, axis=1), 1, -1)
    np.testing.assert_allclose(soft_rank(np.moveaxis(x, 1, -1), solver=Dual(2000)), ranks, atol=1e-10)
    assert jax.eval_shape(soft_sort, np.float16(x)).dtype == np.float16
    assert soft_sort(np.zeros((2, 0))).shape == (2, 0)


def test_soft_values_are_nan_where_sums_of_them_overflow():
    x = np.float32([-7.1465446e29, 9.99001e29, 7.1465446e29, 0.0, 9.99001e29])
    found = soft_sort(np.stack([x, x]), lam=np.float32([3.3157815e11, 1e-32]), p=1.9)
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1], np.sort(x), rtol=1e-6)


def test_nan_marks_its_row():
    x = np.array([[np.nan, 1, 2, 0], [1, np.nan, 2, 0], [1, 3, 2, 0]])
    np.testing.assert_array_equal(np.isnan(project_permutahedron(x, W)).all(axis=1), [True, True, False])
    np.testing.assert_array_equal(np.isnan(project_permutahedron(W, x)).all(axis=1), [True, True, False])


def test_entries_that_take_no_part_are_as_if_they_were_not_there():
    p = 1.5  # which takes powers of what is absent
    rng = np.random.default_rng(3)
    x, lam = rng.normal(size=(4, 8)), np.array([0.0, 0.3, 1.0, 5.0])
    where = rng.permuted(np.tile(np.arange(8) < 5, (4, 1)), axis=1)
    rest, absent = x[where].reshape(4, 5), np.full((4, 3), -np.inf)

    @jax.jit
    def everything(x, where):
        def quantiles(x):
            found = soft_quantile(x, 0.3, lam=lam, p=p, where=where)
            return found.sum(), found

        slope, quantile = jax.grad(quantiles, has_aux=True)(x)
        sort = soft_sort(x, lam=lam, p=p, descending=True, where=where)
        return sort, soft_rank(x, lam=lam, p=p, descending=True, where=where), quantile, slope

    falling, ranks, quantile, slope = map(np.asarray, everything(rest, None))
    found = list(map(np.asarray, everything(np.where(where, x, np.nan), where)))
    np.testing.assert_allclose(found[0], np.concatenate([falling, absent], axis=1), atol=1e-9)
    np.testing.assert_allclose(found[2], quantile, atol=1e-9)
    for one, other in ((found[1], ranks), (found[3], slope)):
        np.testing.assert_allclose(one[where].reshape(4, 5), other, atol=1e-9)
        assert (one[~where] == 0).all()


def test_of_nothing_there_is_no_quantile():
    nothing = np.zeros(3, bool)
    x = np.array([[1.0, 3.0, 2.0], [2.0, -np.inf, -np.inf]])
    quantiles = soft_quantile(x, 0.5, where=np.stack([nothing, ~nothing]))
    np.testing.assert_array_equal(quantiles, [np.nan, 2.0])
    assert (np.asarray(soft_rank(X[0, :3], where=nothing)) == 0).all()
