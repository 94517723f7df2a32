"""What the tests of softjax's top_k, of fast-soft-sort and of the authors ask of theirs, asked of ours.

Not asked, with the reason:

    softjax         soft indices of each rank, which sum to one: a mask says how much of an entry is among the k
                    largest, not at which place. Its other relaxations: SoftSort, NeuralSort and transport are masks in
                    `ops.baselines`; sorting networks are not here. `keepdims` and interpolations of quantiles.
    fast-soft-sort  the regularisation by KL, which is dense: p is in (1, 2]. Bounds of isotonic regression: see
                    `tests/ops/test_peers.py`.
    the authors     p = 3, see there. The roots of cubic polynomials: there are none in ours.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy import optimize

from ops import (
    hard_topk_mag,
    hard_topk_mask,
    isotonic_regression,
    project_permutahedron,
    soft_rank,
    soft_sort,
    soft_topk,
    topk_mag,
    topk_mask,
)

SOLVERS = [("threshold", 2.0), ("threshold", 1.5), ("pav", 2.0), ("pav", 4 / 3), ("dykstra", 2.0)]
LONG = np.random.RandomState(0).randn(1000).astype(np.float32)


@pytest.mark.parametrize(("solver", "p"), SOLVERS)
def test_authors_mask_of_a_thousand_entries(solver, p):
    mask = np.asarray(topk_mask(LONG, 10, lam=0.01, p=p, solver=solver))
    assert np.count_nonzero(mask) == 10
    assert set(np.flatnonzero(mask)) == set(np.argsort(LONG)[-10:])


@pytest.mark.parametrize(("solver", "p"), SOLVERS)
def test_authors_magnitudes_of_a_thousand_entries(solver, p):
    kept = np.asarray(topk_mag(LONG, 10, lam=0.001, p=p, solver=solver))
    assert np.count_nonzero(kept) == 10
    largest = np.where(np.abs(LONG) > np.sort(np.abs(LONG))[-11], LONG, 0)
    assert np.mean((kept - largest) ** 2) < 1e-6  # they ask for 5e-4


def test_authors_hard_operators():
    x = np.random.RandomState(0).randn(20).astype(np.float32)
    mask = np.asarray(hard_topk_mask(x, 3))
    assert set(np.flatnonzero(mask)) == set(np.argsort(x)[-3:])
    np.testing.assert_array_equal(hard_topk_mag(x, 3), x * np.asarray(hard_topk_mask(np.abs(x), 3)))


def isotonic_objective(v, s, w, lam, p, phi):
    q = p / (p - 1)
    return np.sum(np.abs(s - v) ** q / q + lam ** (q - 1) * w * (v if phi == "identity" else v**2 / 2))


@functools.cache
def isotonic_solution(p, phi):
    """A compiled function of 20 entries, their weights, a direction and lam: the solution, and its slope along it.

    Of three rows each, so that the tests below share a program.
    """

    def apply(s, w, along, lam):
        return jax.jvp(lambda s: isotonic_regression(s, w, lam=lam, p=p, phi=phi).v, (s,), (along,))

    return jax.jit(apply)


ISOTONIC = pytest.mark.parametrize(("p", "phi"), [(2.0, "identity"), (1.5, "half_square")])
ISOTONIC_LAMS = np.array([0.01, 0.1, 1.0])


@ISOTONIC
def test_authors_isotonic_problems_of_entries_in_any_order(p, phi, x64):
    rng = np.random.RandomState(0)
    s, w = rng.rand(20), rng.rand(20)
    rows = np.tile(s, (3, 1))
    solutions = np.asarray(isotonic_solution(p, phi)(rows, np.tile(w, (3, 1)), rows, ISOTONIC_LAMS)[0])
    for v, lam in zip(solutions, ISOTONIC_LAMS, strict=True):
        found = optimize.minimize(
            isotonic_objective,
            np.full(20, s.mean()),
            args=(s, w, lam, p, phi),
            constraints={"type": "ineq", "fun": lambda v: -np.diff(v)},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        assert (np.diff(v) <= 0).all()
        assert isotonic_objective(v, s, w, lam, p, phi) <= found.fun + 1e-9
        # Where the objective is flat it is not `v` that is compared.
        assert isotonic_objective(v, s, w, lam, p, phi) >= found.fun - 1e-4


@ISOTONIC
def test_authors_derivatives_of_isotonic_problems(p, phi, x64):
    rng = np.random.RandomState(0)
    s, w, along = (np.tile(row, (3, 1)) for row in (np.abs(rng.randn(20)), rng.rand(20), rng.randn(20)))
    at = isotonic_solution(p, phi)
    slope = at(s, w, along, ISOTONIC_LAMS)[1]
    right, left = (at(s + step * along, w, along, ISOTONIC_LAMS)[0] for step in (1e-6, -1e-6))
    np.testing.assert_allclose(slope, (right - left) / 2e-6, atol=1e-5)


def permuted(x, lam=1.0, descending=False):
    return project_permutahedron(x, np.arange(5.0)[::-1], lam=lam)


@pytest.mark.parametrize(
    ("operator", "descending"),
    [(soft_sort, False), (soft_rank, True), (permuted, False)],
)
def test_fast_soft_sort_jacobians(operator, descending, x64):
    rng = np.random.RandomState(0)
    x, v = rng.randn(5), rng.randn(5)

    @jax.jit
    def value_and_products(x, v, lam):
        value, pull = jax.vjp(lambda x: operator(x, lam=lam, descending=descending), x)
        return value, jax.jvp(lambda x: operator(x, lam=lam, descending=descending), (x,), (v,))[1], pull(v)[0]

    points = x + 1e-6 * np.concatenate([np.eye(5), -np.eye(5), np.zeros((1, 5))])
    lam, directions = np.repeat([0.1, 1.0, 10.0], 11), np.tile(v, (33, 1))
    for values, forwards, backwards in zip(
        *(found.reshape(3, 11, 5) for found in value_and_products(np.tile(points, (3, 1)), directions, lam)),
        strict=True,
    ):
        jacobian = np.asarray(values[:5] - values[5:10]).T / 2e-6
        np.testing.assert_allclose(forwards[10], jacobian @ v, atol=1e-6)
        np.testing.assert_allclose(backwards[10], v @ jacobian, atol=1e-6)


NEARLY_HARD, VERY_SOFT = np.float32(1e-4), np.float32(1e4)


# k up to all there are, at either end of the axes.
@pytest.mark.parametrize(("shape", "axis", "k"), [((4,), 0, 4), ((2, 3), 0, 2), ((2, 3), -1, 1)])
def test_softjax_top_k(shape, axis, k):
    x = np.random.RandomState(0).randn(*shape).astype(np.float32)

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def gradient_and_values(x, lam):
        weights, indices, overflow = soft_topk(x, k, num_slots=k, lam=lam, axis=axis)
        found = weights * jnp.take_along_axis(x, indices, axis=axis)
        return jnp.sum(found), (found, weights, indices, overflow)

    hard, first = lax.top_k(np.moveaxis(x, axis, -1), k)
    _, (found, _, indices, overflow) = gradient_and_values(x, NEARLY_HARD)
    np.testing.assert_allclose(np.moveaxis(found, axis, -1), hard, atol=1e-6)
    np.testing.assert_array_equal(np.moveaxis(indices, axis, -1), first)
    np.testing.assert_array_equal(overflow, np.zeros_like(overflow))
    for lam in (NEARLY_HARD, VERY_SOFT):
        gradient, (_, weights, _, overflow) = gradient_and_values(x, lam)
        assert weights.min() >= 0
        np.testing.assert_allclose(weights.sum(axis=axis) + overflow, k * np.ones_like(overflow), rtol=1e-5)
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0.1
