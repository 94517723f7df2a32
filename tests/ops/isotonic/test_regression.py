"""The isotonic problem: solvers against SciPy and the optimality conditions."""

import functools

import jax
import numpy as np
import pytest
from scipy import optimize, special

from ops.isotonic import Dual, Dykstra, isotonic_solution, pav
from ops.isotonic.pav import pool_adjacent_violators
from ops.isotonic.problem import Problem
from ops.nonlinearities import IDENTITY, Nonlinearity
from tests.ops.isotonic.certificate import adversarial, violation

pytestmark = pytest.mark.usefixtures("x64")

N = 20
S = adversarial(N)
W = np.random.default_rng(1).uniform(0, 2, S.shape)
LAM = np.geomspace(1e-3, 30, len(S))


def reference(s, w, lam, phi):
    """Both are weighted projections onto the decreasing vectors for p = 2."""
    target, precision = (s - lam * w, np.ones_like(s)) if phi == "identity" else (s / (1 + lam * w), 1 + lam * w)
    return optimize.isotonic_regression(target, weights=precision, increasing=False).x


@pytest.mark.parametrize("phi", ["identity", "half_square"])
def test_pav_against_other_libraries(phi):
    found = isotonic_solution(S, W, lam=LAM, phi=phi, lower=-np.inf)
    expected = np.stack([reference(*row, phi) for row in zip(S, W, LAM, strict=True)])
    np.testing.assert_allclose(found.v, expected, atol=1e-12)
    assert found.converged.all()
    assert np.all(np.diff(found.v) <= 0)


# It is not built in, and its pooled values have no closed form.
SOFTPLUS = Nonlinearity(
    "softplus", jax.nn.softplus, jax.nn.sigmoid, lambda x: jax.nn.sigmoid(x) * jax.nn.sigmoid(-x), lambda y: y
)


def test_pav_is_optimal():
    found = isotonic_solution(S, W, lam=LAM, p=1.5, phi=SOFTPLUS)
    for v, row, w, lam in zip(np.asarray(found.v), S, W, LAM, strict=True):
        assert violation(v, row, w, lam, 1.5, special.expit) < 1e-12


def test_non_negative_cone():
    s = S[:, :6]
    found = isotonic_solution(s, W[:, :6], lam=0.5, lower=0.0)
    for v, row, w in zip(np.asarray(found.v), s, W[:, :6], strict=True):
        # v = cumulated increments from the end, all of them non-negative.
        best = optimize.nnls(np.triu(np.ones((6, 6))), row - 0.5 * w)[0]
        np.testing.assert_allclose(v, np.cumsum(best[::-1])[::-1], atol=1e-10)


def test_dual_ascent_is_dykstra_for_p_2():
    s, phi = np.abs(S), "half_square"
    by_dykstra = isotonic_solution(s, W, lam=LAM, phi=phi, solver=Dykstra(max_iter=3, tol=0.0))
    by_dual = isotonic_solution(s, W, lam=LAM, phi=phi, solver=Dual(max_iter=3, tol=0.0))
    np.testing.assert_allclose(by_dual.v, by_dykstra.v, atol=1e-11)
    assert set(by_dykstra.iterations.tolist()) == {3}
    assert not by_dykstra.converged.all()


def test_iterative_solvers_converge():
    solver, phi = Dykstra(20000), "half_square"
    s, w = np.abs(S[:, :8]), W[:, :8]
    exact = np.stack([reference(*row, phi) for row in zip(s, w, LAM, strict=True)])
    found = isotonic_solution(s, w, lam=LAM, phi=phi, solver=solver)
    assert np.asarray(found.converged).all()
    np.testing.assert_allclose(found.v, exact, atol=1e-10)
    assert np.all(np.asarray(found.iterations) < solver.max_iter)


def test_residual_is_the_error():
    exact = isotonic_solution(S, W, lam=LAM)
    found = isotonic_solution(S, W, lam=LAM, solver=Dykstra(max_iter=40))
    error = np.abs(np.asarray(found.v) - np.asarray(exact.v)).max(1)
    late = ~np.asarray(found.converged)
    assert late.sum() >= 3
    assert np.all(error[late] > 1e-6 * LAM[late])
    np.testing.assert_array_less(error[late], 2 * np.asarray(found.residual)[late])
    np.testing.assert_array_less(error[~late], 1e-11)


def test_rows_whose_powers_overflow_are_nan():
    s = np.float32([[0.0, 20.0, 2.0], [8.0, 4.0, 2.0], [0.0, 3.0, 2.0]])
    found = isotonic_solution(s, np.zeros_like(s), lam=np.float32(1), p=1.02)
    assert np.isnan(found.v[0]).all()
    assert not found.converged[0]
    np.testing.assert_allclose(found.v[1:], [[8.0, 4.0, 2.0], [1.5, 1.5, 1.5]], rtol=1e-6)


@pytest.mark.parametrize(("solver", "phi"), [("pav", "half_square"), ("dykstra", "identity")])
def test_rounding_error_counts_as_converged(solver, phi):
    rng = np.random.default_rng(0)
    s = -np.sort(-100 * np.abs(rng.normal(size=(200, 6)))).astype(np.float32)
    w = rng.uniform(size=s.shape).astype(np.float32)
    found = isotonic_solution(s, w, phi=phi, solver=solver)
    assert found.converged.all()


def test_large_entry_ends_no_solver_early():
    s = np.float32([*np.linspace(0, 1, 30), -1e9])
    found = isotonic_solution(s, solver=Dykstra(30))
    assert found.iterations == 30
    assert not found.converged


def test_a_merge_takes_a_few_passes(monkeypatch):
    # All segments wait for the slowest one. Where rounding of the sums is followed, that takes up to 70 passes.
    evaluations, find_root = [], pav.find_root

    def counted(*arguments, **options):
        root = find_root(*arguments, **options)
        jax.debug.callback(lambda passes: evaluations.append(int(passes.max())), root.evaluations)
        return root

    monkeypatch.setattr(pav, "find_root", counted)
    s = np.asarray(adversarial(60), np.float32)
    w = np.broadcast_to(np.linspace(1, 0, 60, dtype=np.float32), s.shape)
    jax.jit(functools.partial(pool_adjacent_violators, Problem(4 / 3, IDENTITY)))(
        s, w, np.full((len(s), 1), 0.1, np.float32)
    )
    jax.effects_barrier()
    assert len(evaluations) == 6
    assert max(evaluations) <= 16
