"""The oracle agrees with a general-purpose solver and lets off little."""

import functools

import numpy as np
import pytest

from tests.ops import oracles
from tests.ops.oracle.equation import Curve
from tests.ops.oracle.problem import problem
from tests.ops.oracle.rounding import expected
from tests.ops.oracle.topk import topk

X = oracles.samples((6, 6), seed=3)
K = np.array([1.3, 2.5, 1.7, 3.2, 0.6, 4.1])
LAM = np.array([0.3, 1.0, 2.0, 0.7, 0.5, 3.0])


@pytest.mark.parametrize("p", [4 / 3, 2.0])
@pytest.mark.parametrize(("curve", "kind"), [("identity", "mask"), ("half_square", "magnitude")])
def test_values_are_those_of_a_convex_solver(p, curve, kind):
    found = topk(problem(X, K, LAM, p), Curve(curve)).wanted["value"]
    right = oracles.by_rows(functools.partial(oracles.generic, p=p, kind=kind), X, K, LAM)
    np.testing.assert_allclose(found.astype(float), right, atol=3e-6)


def test_tolerance_is_large_only_at_kinks():
    x = np.array([[0.9, 0.2, -0.4], [1.0, 0.0, -1.0]])
    of = problem(x, 1.0, 1.0, cotangent=x + 1, unit=2.0**-23)
    found = expected(functools.partial(topk, curve=Curve("identity")), of)
    assert found["value"].allowed.max() < 100 * 2.0**-23
    assert found["x"].allowed[0].max() < 200 * 2.0**-23
    assert found["x"].allowed[1].max() > 0.1  # just selected fully, and just not at all
