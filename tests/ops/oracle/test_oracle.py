"""The oracle agrees with general-purpose solvers and lets off little; operators are held to its derivatives."""

import functools

import numpy as np
import pytest

from tests.ops import oracles
from tests.ops.oracle.equation import Curve
from tests.ops.oracle.knapsack import knapsack
from tests.ops.oracle.permutahedron import project
from tests.ops.oracle.problem import problem
from tests.ops.oracle.rounding import expected
from tests.ops.oracle.topk import topk
from tests.ops.oracle.value import value

X = oracles.samples((6, 6), seed=3)
K = np.array([1.3, 2.5, 1.7, 3.2, 0.6, 4.1])
LAM = np.array([0.3, 1.0, 2.0, 0.7, 0.5, 3.0])


@pytest.mark.parametrize("p", [1.2, 4 / 3, 1.7, 2.0])
@pytest.mark.parametrize(("curve", "kind"), [("identity", "mask"), ("half_square", "magnitude")])
def test_values_are_those_of_a_convex_solver(p, curve, kind):
    found = topk(problem(X, K, LAM, p), Curve(curve)).wanted["value"]
    right = oracles.by_rows(functools.partial(oracles.generic, p=p, kind=kind), X, K, LAM)
    np.testing.assert_allclose(found.astype(float), right, atol=3e-5)


def test_rounding_lets_off_little_but_at_a_kink():
    x = np.array([[0.9, 0.2, -0.4], [1.0, 0.0, -1.0]])
    of = problem(x, 1.0, 1.0, cotangent=x + 1, unit=2.0**-23)
    found = expected(functools.partial(topk, curve=Curve("identity")), of)
    assert found["value"].allowed.max() < 100 * 2.0**-23
    assert found["x"].allowed[0].max() < 200 * 2.0**-23
    assert found["x"].allowed[1].max() > 0.1  # just selected fully, and just not at all


@pytest.mark.parametrize(
    ("oracle", "of", "name", "size", "units"),
    [
        (  # weights that cancel in the mean of a tied row: rounding in units of a weight
            functools.partial(topk, curve=Curve("half_square"), debias=True),
            problem([[1000.0] * 4], 3.0, 5e-8, 1.5, cotangent=[[1.75, -1.625, -0.125, 0.0]], unit=2.0**-23),
            "x",
            2e9,
            200,
        ),
        (  # a sum of numbers below 0
            functools.partial(value, curve=Curve("identity")),
            problem([np.linspace(-1000, -999, 8)], 8.0, 1.0, 1.7, cotangent=[[1.0]], unit=2.0**-23),
            "value",
            8000,
            30,
        ),
        (  # quotients of 23 in units of 0.005, to the power 20
            lambda of: knapsack(of, np.ones_like(of.x)),
            problem([[23.3633, 23.3634, 23.3631, 23.3628]], 2.5, 0.0054, 1.05, extra=[[2.1, 3.7, 1.4, 0.4]]),
            "value",
            20 * 23 / 0.0054,
            30,
        ),
        (  # pooled by 1e-20 of the weight
            lambda of: project(of, of.x, np.longdouble([[-2.0, 0.0]])),
            problem([[0.528335, 1.3135316]], 0.0, 0.78519666, 1.066, cotangent=[[-1.0, -0.125]], unit=2.0**-23),
            "value",
            2,
            200,
        ),
    ],
    ids=["a mean that cancels", "a sum below 0", "a quotient", "a block of one and little more"],
)
def test_an_error_of_some_units_is_noticed_where_a_few_are_let_off(oracle, of, name, size, units):
    found = expected(oracle, of)[name]
    assert 0 < found.allowed.max() < units * of.unit * size


def test_a_share_about_to_underflow_may_have_no_derivative_and_no_other_may():
    of = problem([[4.8e11, -9e-21, 3.1e-26]], 1.0, 1e12, cotangent=[[-1.5, -1.75, -0.375]], unit=2.0**-23)
    found = expected(functools.partial(topk, curve=Curve("abs")), of)["x"]
    np.testing.assert_array_equal(found.other == 0, [[False, False, True]])
    np.testing.assert_array_less(found.allowed, 1e-3 * np.abs(found.wanted))


def test_where_an_interval_of_thresholds_may_close_the_derivative_in_k_has_two_sides():
    x = np.array([[0.875, 0.6875]])
    near, far = (
        expected(
            functools.partial(topk, curve=Curve("identity")), problem(x, 1.0, lam, 4 / 3, cotangent=[[-1.75, -1.875]])
        )["k"].allowed
        for lam in (0.1875, 0.1874)
    )
    assert near > 0.125
    assert far < 1e-10
