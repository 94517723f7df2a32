"""Isotonic regression of observations: weights, bounds and order against scikit-learn and the optimality conditions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize
from sklearn import isotonic as peer

from ops.isotonic import Dual, Dykstra, isotonic_regression, isotonic_solution, pav, topk_solution
from ops.isotonic.problem import Problem
from ops.nonlinearities import HALF_SQUARE
from tests.ops import oracles
from tests.ops.isotonic.certificate import adversarial, violation

N = 9
RNG = np.random.default_rng(0)
W, WEIGHTS = RNG.uniform(0, 2, (8, N)), RNG.uniform(0.2, 3.0, (8, N))
SLOPES = {"exp": lambda v: np.exp(v - 1), "half_square": lambda v: v}

# Ties and all scales, in entries and in weights.
ENTRIES = st.one_of(st.integers(-2, 2).map(float), st.floats(-1e6, 1e6, width=32))
SCALES = st.one_of(st.just(1.0), st.floats(-15, 15).map(lambda exponent: 10.0**exponent))


@given(
    s=hnp.arrays(np.float64, N, elements=ENTRIES),
    weights=hnp.arrays(np.float64, N, elements=SCALES),
    bounds=st.tuples(ENTRIES, ENTRIES).map(sorted),
    increasing=st.booleans(),
)
def test_agrees_with_scikit_learn(s, weights, bounds, increasing):
    with jax.enable_x64(True):
        found = isotonic_solution(
            s, sample_weight=weights, lower=bounds[0], upper=bounds[1], increasing=increasing, lam=1e-3
        )
    expected = peer.isotonic_regression(
        s, sample_weight=weights, y_min=bounds[0], y_max=bounds[1], increasing=increasing
    )
    np.testing.assert_allclose(found.v, expected, rtol=1e-12, atol=1e-13 * np.abs(s).max())
    assert found.converged


def test_single_observation_with_row_bounds():
    found = isotonic_regression(np.float32([[2.0], [3.0]]), sample_weight=7.0, lower=np.float32([2.5, 1.0]))
    np.testing.assert_array_equal(found, [[2.5], [3.0]])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("phi", "p"), [("exp", 1.5), ("half_square", 2.0)])
def test_weighted_entries_are_optimal(phi, p):
    s, lam = np.abs(adversarial(N)), np.geomspace(1e-2, 10, 8)
    found = isotonic_solution(s, W, lam=lam, p=p, phi=phi, sample_weight=WEIGHTS)
    for v, *row, c in zip(np.asarray(found.v), s, W, lam, WEIGHTS, strict=True):
        assert violation(v, *row, p, SLOPES[phi], c) < 1e-12
    assert found.converged.all()


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("solver", [Dykstra(20_000), Dual(20_000)])
def test_iterative_solvers_take_weights(solver):
    solve = functools.partial(isotonic_solution, adversarial(N), W, lam=0.3, sample_weight=WEIGHTS, phi="half_square")
    found = solve(solver=solver)
    assert found.converged.all()
    np.testing.assert_allclose(found.v, solve().v, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_both_pav_algorithms_agree(monkeypatch):
    """Keeps a stack of blocks where ``is_fast`` holds, and merges halves elsewhere."""
    problem, lam = Problem(2.0, HALF_SQUARE), 1.0 / WEIGHTS
    pool = functools.partial(pav.pool_adjacent_violators, problem)
    v, linked = jax.jit(pool)(adversarial(N), W, lam)
    batch = (value.reshape(2, 4, N) for value in (adversarial(N), W, lam))
    np.testing.assert_array_equal(jax.jit(jax.vmap(pool))(*batch)[1].reshape(8, N), linked)
    monkeypatch.setattr(pav, "is_fast", lambda shape: False)
    expected, also_linked = jax.jit(lambda *rows: pool(*rows))(adversarial(N), W, lam)  # traced anew
    np.testing.assert_array_equal(linked, also_linked)
    np.testing.assert_allclose(v.hi, expected.hi, rtol=1e-14)
    assert linked.any()


@pytest.mark.usefixtures("x64")
def test_derivatives_in_all_arguments():
    """With bounds the value is that of a convex solver, too."""
    # Pooled means: (s_i - mean) / total in the weights, the shares of the total in the entries.
    s, c = np.array([3.0, 1.0, 2.0, 2.5, 0.0]), WEIGHTS[0, :5]
    jacobians = jax.jit(jax.jacrev(lambda s, c: isotonic_regression(s, sample_weight=c), (0, 1)))
    in_s, in_c = map(np.asarray, jacobians(s, c))
    block, total = slice(1, 4), c[1:4].sum()
    mean = c[block] @ s[block] / total
    np.testing.assert_allclose(in_s[block, block], np.broadcast_to(c[block] / total, (3, 3)), rtol=1e-13)
    np.testing.assert_allclose(in_c[block, block], np.broadcast_to((s[block] - mean) / total, (3, 3)), rtol=1e-12)
    np.testing.assert_array_equal(in_c[[0, 4]], np.zeros((2, 5)))

    def solution(s, w, lam, c, lower, upper):
        options = {"lower": lower, "upper": upper, "p": 4 / 3, "phi": "exp", "increasing": True}
        return isotonic_regression(s, w, lam=lam, sample_weight=c, **options)

    s, w, lam, lower = adversarial(N)[:4] + 1.0, W[:4], np.geomspace(0.3, 2, 4), np.full(4, -0.2)
    v = oracles.check_derivatives(solution, (s, w, lam, WEIGHTS[:4], lower, lower + 0.9), 1e-5)
    assert np.any(v == -0.2)
    assert np.any(v == 0.7)
    for found, *row in zip(v, s, w, lam, WEIGHTS, strict=False):
        best = optimize.minimize(
            lambda v, s, w, lam, c: np.sum(c * (np.abs(s - v) ** 4 / 4 / lam**3 + w * np.exp(v - 1))),
            np.zeros(N),
            tuple(row),
            method="SLSQP",
            bounds=N * [(-0.2, 0.7)],
            constraints={"type": "ineq", "fun": lambda v, *row: np.diff(v)},
            options={"ftol": 1e-15},
        ).x
        np.testing.assert_allclose(found, best, atol=1e-6)


def test_finite_for_weights_of_all_scales():
    s = np.float32(adversarial(N))
    weights = np.geomspace(1e-16, 1e16, N, dtype=np.float32)[RNG.permuted(np.tile(np.arange(N), (8, 1)), axis=1)]

    def loss(s, c):
        return jnp.sum(isotonic_regression(s, sample_weight=c, lam=1e-3) ** 2)

    v, gradients = jax.jit(jax.value_and_grad(loss, (0, 1)))(s, weights)
    assert all(np.isfinite(part).all() for part in (v, *gradients))
    expected = [
        peer.isotonic_regression(row, sample_weight=c, increasing=False) for row, c in zip(s, weights, strict=True)
    ]
    np.testing.assert_allclose(v, np.square(expected).sum(), rtol=1e-5)


@pytest.mark.parametrize("solver", ["pav", "dual"])
def test_nan_rows(solver):
    s = np.float32([[1, 2, np.nan], [1, 2, 3], [1, 2, 3]])
    w = np.float32([[0, 0, 0], [0, np.nan, 0], [0, 0, 0]])
    found = isotonic_solution(s, w, solver=solver)
    np.testing.assert_allclose(found.v, [3 * [np.nan], 3 * [np.nan], 3 * [2]], rtol=1e-6)
    assert found.converged.tolist() == [False, False, True]


def test_empty_batches():
    empty = np.empty((0, 3), np.float32)
    assert isotonic_regression(empty).shape == (0, 3)
    assert topk_solution(empty, 1)[1].v.shape == (0, 3)


def test_out_of_range_is_refused_or_nan():
    s = np.float32([[1.0, 2.0], [1.0, 0.5]])
    for name, value in {"sample_weight": 0.0, "upper": -1.0, "lower": "a"}.items():
        with pytest.raises(ValueError, match=name):
            isotonic_regression(s, **({"lower": 0.0} | {name: value}))
    with pytest.raises(ValueError, match="lower"):
        isotonic_regression(s, phi="abs", lower=-1.0)
    traced = jax.jit(lambda c, lower: isotonic_regression(s, sample_weight=c, lower=lower, upper=1.7))
    np.testing.assert_array_equal(
        np.isnan(traced(np.float32([[1, 0], [1, 1]]), np.float32([0, 0]))), [[True] * 2, [False] * 2]
    )
    np.testing.assert_array_equal(traced(np.ones((2, 2), np.float32), np.float32([2, 0])), [[np.nan] * 2, [1.0, 0.5]])
