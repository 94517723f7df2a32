"""The fuzz's plans against a generic convex solver, and their derivatives against differences."""

import numpy as np
import pytest

from scripts.fuzz.oracle import plan
from scripts.fuzz.oracle.rounding import Precision
from tests.ops import oracles
from tests.ops.test_plan import generic

FLOAT64 = Precision(2.0**-52, 2.3e-308)


def problem(x, k, limit, lam, p):
    def scalar(value):
        return np.broadcast_to(np.float64(value), len(x))[:, None, None]

    return plan.Problem(x, scalar(k), np.broadcast_to(limit, (len(x), 1, x.shape[2])), scalar(lam), 1 / (p - 1))


@pytest.mark.parametrize("p", [2.0, 1.5])
def test_plans_are_those_of_a_generic_convex_solver(p):
    x = oracles.samples((3, 4, 5))
    for k, limit, lam in ((2.0, 2.0, 0.5), (1.0, 0.8, 1.0), (2.0, np.array([1.6, 4, 4, 4, 1.6]), 0.2)):
        of = problem(x, k, limit, lam, p)
        u, v = plan.solve(of)
        assert of.residual(u, v).max() < 1e-12
        assert (v > 0).any()
        for row, found in zip(x, of.plan(u, v), strict=True):
            np.testing.assert_allclose(found, generic(row, k, limit, lam, p), atol=2e-5)


@pytest.mark.parametrize("p", [2.0, 1.5])
def test_derivatives_are_limits_of_differences(p):
    rng, compared = np.random.default_rng(0), 0
    x, h, along = rng.normal(size=(3, 8, 3, 4))
    limit, k, lam, step = np.array([[[1.1, 1.2, 3.0, 3.0]]]), 1.3, 0.7, 1e-6

    def sums(x, k, lam):
        of = problem(x, k, limit, lam, p)
        return (of.plan(*plan.solve(of)) * h).sum(axis=(1, 2))

    answers = plan.expect(problem(x, k, limit, lam, p), p, FLOAT64, 1e-12, h)
    value, *derivatives = answers.quantities
    np.testing.assert_allclose((value.wanted * h.reshape(8, -1)).sum(axis=1), sums(x, k, lam), rtol=1e-9)
    differences = [
        sums(x + step * along, k, lam) - sums(x - step * along, k, lam),
        sums(x, k + step, lam) - sums(x, k - step, lam),
        sums(x, k, lam + step) - sums(x, k, lam - step),
    ]
    for quantity, difference in zip(derivatives, differences, strict=True):
        wanted = quantity.wanted * (along.reshape(8, -1) if quantity.name == "d/dx" else 1)
        judged = quantity.judged[:, 0]
        compared += judged.sum()
        np.testing.assert_allclose(wanted.sum(axis=1)[judged], difference[judged] / (2 * step), rtol=1e-4, atol=1e-5)
    assert compared > 12


def test_where_all_limits_bind_the_number_has_no_derivative():
    x, h = np.random.default_rng(1).normal(size=(2, 4, 3, 6))
    judged = {
        quantity.name: quantity.judged[:, 0]
        for quantity in plan.expect(problem(x, 2.0, 1.0, 1.5, 2.0), 2.0, FLOAT64, 1e-12, h).quantities
    }
    assert judged["value"].all()
    assert judged["d/dx"].any()
    assert not judged["d/dk"].any()
