import numpy as np
import pytest

from scripts.fuzz.oracle import projection
from scripts.fuzz.oracle.reals import EXTENDED, Real, real
from scripts.fuzz.oracle.rounding import Precision
from tests.ops import oracles

pytestmark = pytest.mark.skipif(not EXTENDED, reason="the oracle needs more than float64")
FLOAT64 = Precision(2.0**-52, 2.3e-308)


def answers(x, w, lam, p, cotangent=None, of_weights=False):
    x, w = np.atleast_2d(x), np.atleast_2d(w)
    cotangent = np.zeros(x.shape) if cotangent is None else cotangent
    return projection.expect(x, w, np.asarray(lam), p, FLOAT64, cotangent, of_weights).quantities


@pytest.mark.parametrize("p", [1.5, 2.0])
def test_projection_is_that_of_a_generic_convex_solver(p):
    rng = np.random.default_rng(0)
    for lam in (0.2, 1.0, 5.0):
        x, w = rng.normal(size=(2, 3))
        np.testing.assert_allclose(
            answers(x, w, [lam], p)[0].wanted[0].astype(float), oracles.projected(x, w, lam, p), atol=2e-4
        )


def test_known_numbers():
    x, places = np.array([5.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(answers(x, places, [2.0], 2.0)[0].wanted[0].astype(float), [3, 1.25, 1.75], rtol=1e-15)
    sort = answers(places, x, [1.0], 2.0)[0].wanted[0].astype(float)
    np.testing.assert_allclose(sort, [5 / 3, 8 / 3, 11 / 3], rtol=1e-15)
    np.testing.assert_array_equal(answers(x, places, [0.0], 2.0)[0].wanted[0], [3, 1, 2])


def test_entries_far_from_0_are_told_apart():
    x, places = 1e20 + np.zeros(3), np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(answers(x, places, [1e-9], 1.5)[0].wanted[0].astype(float), 2, rtol=1e-15)


@pytest.mark.parametrize("of_weights", [False, True])
@pytest.mark.parametrize("p", [1.4, 2.0])
def test_derivatives_are_limits_of_differences(p, of_weights):
    rng = np.random.default_rng(1)
    step, compared = Real(1e-8), 0
    for lam in (0.3, 1.0, 3.0, 9.0):
        x, w, cotangent, along = real(rng.normal(size=(4, 5)))
        moves = np.array([0, step, -step, 0, 0])[:, None] * along
        lams = lam + np.array([0, 0, 0, step, -step], Real)
        xs, ws = x + moves * (not of_weights), w + moves * of_weights
        weights = np.tile(cotangent, (5, 1))
        value, of_entries, in_lam = answers(xs, ws, lams, p, weights, of_weights)
        sums = (value.wanted * cotangent).sum(axis=1)
        if of_entries.judged[0, 0]:
            compared += 1
            claimed = (of_entries.wanted[0] * along).sum(), in_lam.wanted[0, 0]
            for i, derivative in enumerate(claimed):
                difference = (sums[2 * i + 1] - sums[2 * i + 2]) / (2 * step)
                assert float(derivative) == pytest.approx(float(difference), rel=1e-4, abs=1e-6)
    assert compared >= 3
