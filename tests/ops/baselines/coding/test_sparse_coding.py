"""Sparse codes against scikit-learn's coordinate descent, ridge regression, shrinkage."""

import jax
import numpy as np
import pytest
from sklearn.linear_model import Lasso

from ops.baselines import coding
from ops.baselines.coding import curvature_bound, ridge_code, sparse_code
from tests.ops import oracles
from tests.ops.test_optimized import AS_USERS

FEATURES, ATOMS = 10, 18
D = oracles.samples((FEATURES, ATOMS))
X = oracles.samples((2, 3, FEATURES), 1)
LAM = np.array([[0.5, 1.0, 2.0], [5.0, 0.2, 100.0]])  # none of the atoms for the last one


def exact(x, dictionary, lam):
    """Coordinate descent. Its objective is this one over the number of features."""
    model = Lasso(alpha=lam / len(x), fit_intercept=False, tol=1e-15, max_iter=100_000)
    return model.fit(dictionary, x).coef_


def objective(code, x, dictionary, lam):
    return 0.5 * np.sum((x - dictionary @ code) ** 2) + lam * np.abs(code).sum()


CODES = np.stack([exact(x, D, lam) for x, lam in zip(X.reshape(-1, FEATURES), LAM.ravel(), strict=True)])
CODES = CODES.reshape(2, 3, ATOMS)


def test_agrees_with_coordinate_descent(x64):
    steps = {}
    for solver in ("fista", "ista", "homotopy"):
        found = sparse_code(X, D, LAM, solver=solver, tol=1e-13, max_iter=20_000)
        assert np.all(found.converged)
        assert found.iterations.shape == found.gap.shape == (2, 3)
        np.testing.assert_allclose(found.code, CODES, atol=1e-6)
        np.testing.assert_array_equal(found.code != 0, CODES != 0)
        steps[solver] = np.asarray(found.iterations).sum()
    assert 0 < np.count_nonzero(CODES) < CODES.size
    assert steps["fista"] < steps["ista"] / 4  # what acceleration is for


def test_gap_bounds_the_objective_error(x64):
    for most in (0, 1, 5, 40):
        found = sparse_code(X, D, LAM, tol=1e-10, max_iter=most)
        assert np.all((found.iterations == most) | found.converged)
        for index in np.ndindex(2, 3):
            problem = X[index], D, LAM[index]
            reached, best = objective(np.asarray(found.code)[index], *problem), objective(CODES[index], *problem)
            assert -1e-12 <= reached - best <= float(found.gap[index]) * reached * (1 + 1e-9)
            assert bool(found.converged[index]) == (float(found.gap[index]) <= 1e-10)


def test_ista_is_the_iteration_of_the_note(x64):
    lams = LAM.copy()
    lams[0, 0] = 0.05
    x, lam, step = X[0, 0], lams[0, 0], 1 / float(curvature_bound(D))
    largest = np.abs(x @ D).max()
    for solver, thresholds in (
        ("ista", [lam] * 6),
        ("homotopy", [largest * (lam / largest) ** min(i / 20, 1) for i in range(1, 25)]),
    ):
        y = np.zeros(ATOMS)
        for threshold in thresholds:
            moved = y + step * D.T @ (x - D @ y)
            y = np.sign(moved) * np.maximum(np.abs(moved) - step * threshold, 0)
        found = sparse_code(X, D, lams, solver=solver, tol=0.0, max_iter=len(thresholds))
        np.testing.assert_allclose(found.code[0, 0], y, atol=1e-12)


def test_extreme_units_are_solved_in_float32():
    for x_unit, unit in ((1e-25, 1e-10), (1e15, 1e15)):
        x, dictionary = np.float32(X * x_unit), np.float32(D * unit)
        x[0, 1, 2] = np.nan
        found = sparse_code(x, dictionary, np.float32(LAM * (x_unit * unit)))
        right = np.array([[True, False, True], [True, True, True]])
        np.testing.assert_array_equal(np.isfinite(found.code).all(-1) & found.converged, right)
        code = np.asarray(found.code, np.float64) * (unit / x_unit)
        np.testing.assert_allclose(code[right], CODES[right], atol=5e-3)
    assert not sparse_code(np.float32(X), 0 * np.float32(D), np.float32(LAM)).code.any()


def test_derivatives_in_extreme_units():
    """Knows the solution, as atoms are orthogonal, in units whose squares under- or overflow."""
    for unit in (1e-25, 1e25):
        x, dictionary = np.float32([1.0, 0.5]), np.float32(unit * np.eye(2))
        slopes = jax.jacfwd(lambda x, dictionary=dictionary, unit=unit: sparse_code(x, dictionary, 0.1 * unit).code)(x)
        np.testing.assert_allclose(slopes * unit, np.eye(2), atol=1e-5)


def test_derivatives_to_second_order(x64):
    dictionary, x, lam = D[:4, :6], X[0, :2, :4], np.array([0.5, 0.3])

    def function(x, dictionary, lam):
        return sparse_code(x, dictionary, lam, tol=1e-15, max_iter=10_000).code

    code = oracles.check_derivatives(function, (x, dictionary, lam), 1e-5)
    assert np.all((code != 0).sum(-1) >= 2)


def test_twin_atoms_have_finite_gradients():
    dictionary = np.float32(np.repeat(D, 2, axis=1))  # every atom twice: how they share is arbitrary
    weights = np.float32(oracles.samples(2 * ATOMS, 3))

    def loss(x, dictionary, lam):
        return (sparse_code(x, dictionary, lam).code @ weights).sum()

    # As users compile it: conjugate gradients multiply the rounding of code that is generated in a hurry.
    gradient = jax.jit(jax.grad(loss, (0, 1, 2)), compiler_options=AS_USERS)
    gradients = gradient(np.float32(X[0]), dictionary, 0.7)
    assert all(np.isfinite(leaf).all() for leaf in gradients)
    assert max(np.abs(leaf).max() for leaf in gradients) < 1e3


def test_curvature_bound_is_close_and_safe():
    dictionary = oracles.samples((30, 20), 4)
    norm, compiled = np.linalg.norm(dictionary, 2) ** 2, jax.jit(curvature_bound)
    for unit in (1e-15, 1.0, 1e15):
        assert norm <= float(compiled(np.float32(dictionary * unit))) / unit**2 <= 1.03 * norm


@pytest.mark.parametrize("sum_is_fixed", [False, True])
def test_derivative_ignores_unused_atoms(sum_is_fixed):
    dictionary = oracles.samples((6, 5), dtype=np.float32)
    dictionary[:, 3:] *= 1e4
    x, moved = oracles.samples((2, 6), 1, np.float32), oracles.samples((2, 6), 2, np.float32)
    solution = np.float32([[0.2, 0.3, 0.5, 0, 0], [0, 0, 0, 0.4, 0.6]])

    @jax.jit
    def along(moved):
        function = lambda x: coding._differentiable(solution, x, dictionary, np.zeros_like(solution), sum_is_fixed)  # noqa: E731
        return jax.jvp(function, (x,), (moved,))[1]

    found = np.asarray(along(moved))
    for row, used, rest in ((0, slice(0, 3), slice(3, 5)), (1, slice(3, 5), slice(0, 3))):
        atoms = np.float64(dictionary[:, used])
        size = atoms.shape[1]
        ways = np.linalg.svd(np.ones((1, size)))[2][1:].T if sum_is_fixed else np.eye(size)  # in which y may move
        expected = ways @ np.linalg.lstsq(atoms @ ways, moved[row], rcond=None)[0]
        np.testing.assert_allclose(found[row, used], expected, rtol=1e-4)
        assert not found[row, rest].any()


sigshrink = jax.jit(coding.sigshrink)


def test_soft_threshold_is_largest_left_out():
    x = np.float32([[3, -2, 0.5, -1.5], [2, 1, -1, 1], [1, -2, 0, 3], [1, -2, 0, 3]])
    found = jax.jit(jax.vmap(coding.soft_threshold_topk))(x, np.float32([2, 2, 4, 0]))
    # Ties at the threshold leave fewer.
    np.testing.assert_allclose(found, [[1.5, -0.5, 0, 0], [1, 0, 0, 0], [1, -2, 0, 3], [0, 0, 0, 0]])


def test_sigshrink_formula_and_hard_limit():
    x = np.linspace(-3, 3, 13).astype(np.float32)
    expected = x / (1 + np.exp(-5 * (np.abs(x) - 1)))
    np.testing.assert_allclose(sigshrink(x, 1.0, 5.0), expected, rtol=1e-5)
    x[:5] = [-2.0, -0.9, 0.0, 0.9, 1.1]
    np.testing.assert_array_equal(sigshrink(x, 1.0, 1e6)[:5], np.float32([-2.0, 0.0, 0.0, 0.0, 1.1]))


def test_sigshrink_gradients_stay_finite():
    x = np.float32([-1e30, -1e3, 0.0, 1e-30, 1e3, 1e30])
    gradient = jax.jit(jax.grad(lambda x, t, s: sigshrink(x, t, s).sum(), (0, 1, 2)))(x, 10.0, 1e3)
    assert all(np.isfinite(leaf).all() for leaf in gradient)


@pytest.mark.parametrize("shape", [(12, 5), (5, 12)], ids=["tall", "wide"])
def test_ridge_code_solves_normal_equations(x64, shape):
    lam, dictionary, x = 0.7, oracles.samples(shape), oracles.samples((2, shape[0]), 1)
    expected = np.linalg.solve(dictionary.T @ dictionary + lam * np.eye(shape[1]), dictionary.T @ x.T).T
    np.testing.assert_allclose(oracles.check_gradients(ridge_code, (x, dictionary, lam)), expected, atol=1e-12)
    np.testing.assert_allclose(jax.jit(ridge_code)(np.float32(x), np.float32(dictionary), lam), expected, atol=1e-5)
