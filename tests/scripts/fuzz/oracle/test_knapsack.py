"""The fuzz's knapsacks against a generic convex solver, and their derivatives against differences."""

import numpy as np
import pytest
from scipy import optimize

from scripts.fuzz.oracle import knapsack
from scripts.fuzz.oracle.reals import EXTENDED, Real, real
from scripts.fuzz.oracle.rounding import Precision

pytestmark = pytest.mark.skipif(not EXTENDED, reason="the oracle needs more than float64")
FLOAT64 = Precision(2.0**-52, 2.3e-308)
RNG = np.random.default_rng(0)
X, COSTS, CAPS = RNG.normal(size=(4, 6)), np.exp(RNG.normal(size=(4, 6))), np.exp(0.5 * RNG.normal(size=(4, 6)))
WHERE = np.ones((4, 6), bool)


def answers(x, k, lam, p, cotangent=None, where=WHERE):
    h = np.zeros(x.shape) if cotangent is None else cotangent
    one = np.ones(len(x), Real)
    return knapsack.expect(x, COSTS, CAPS, where, k * one, lam * one, p, FLOAT64, h).quantities


@pytest.mark.parametrize("p", [2.0, 1.5])
def test_what_is_taken_is_what_a_generic_convex_solver_takes(p):
    lam, k = 0.7, 2.5
    found = answers(X, k, lam, p)[0]
    assert found.bound.max() < 1e-13
    for x, cost, cap, z in zip(X, COSTS, CAPS, found.wanted, strict=True):
        solved = optimize.minimize(
            lambda z, x=x: lam / p * np.sum(np.abs(z) ** p) - x @ z,
            np.full(6, k / cost.sum()),
            bounds=[(0, high) for high in cap],
            constraints={"type": "eq", "fun": lambda z, cost=cost: cost @ z - k},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        np.testing.assert_allclose(z.astype(float), solved.x, atol=1e-5)


def test_absent_entries_and_budgets_at_the_end():
    where = WHERE & (np.arange(6) != 2)
    total = np.where(where, COSTS * CAPS, 0).sum(axis=1)
    for k, wanted in ((0.0, 0 * CAPS), (total.max(), np.where(where, CAPS, 0))):
        np.testing.assert_array_equal(
            answers(X, k, 0.3, 1.5, where=where)[0].wanted.astype(float).round(14), wanted.round(14)
        )
    spent = (answers(X, 1.0, 0.3, 1.5, where=where)[0].wanted * COSTS).sum(axis=1)
    np.testing.assert_allclose(spent.astype(float), 1.0)


@pytest.mark.parametrize("p", [2.0, 1.5])
def test_derivatives_are_limits_of_differences(p):
    step, compared = Real(1e-9), 0
    h, along = real(np.random.default_rng(1).normal(size=(2, 4, 6)))
    for lam in (0.3, 1.0, 3.0):

        def sums(shift, k=0.0, of_lam=0.0, lam=lam):
            return (answers(X + shift * along, Real(2.5) + k, Real(lam) + of_lam, p)[0].wanted * h).sum(axis=1)

        differences = sums(step) - sums(-step), sums(0, step) - sums(0, -step), sums(0, 0, step) - sums(0, 0, -step)
        for quantity, difference in zip(answers(X, 2.5, lam, p, h)[1:], differences, strict=True):
            claimed = (quantity.wanted * (along if quantity.name == "d/dx" else 1)).sum(axis=1)
            judged = quantity.judged[:, 0]
            compared += judged.sum()
            wanted = (difference / (2 * step))[judged].astype(float)
            np.testing.assert_allclose(claimed[judged].astype(float), wanted, rtol=1e-6, atol=1e-8)
    assert compared > 30
