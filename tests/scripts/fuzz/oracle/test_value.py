import dataclasses

import numpy as np
import pytest

from scripts.fuzz.oracle import loss, topk, value
from scripts.fuzz.oracle.equation import Curve
from scripts.fuzz.oracle.reals import EXTENDED, Real, real
from scripts.fuzz.oracle.rounding import Precision
from tests.ops import oracles

pytestmark = pytest.mark.skipif(not EXTENDED, reason="the oracle needs more than float64")
FLOAT64 = Precision(2.0**-52, 2.3e-308)
STEP = Real(1e-7)


def moved(x, k, lam, along):
    """The row itself, and three pairs of rows with ``x``, ``k`` and ``lam`` moved by a step up and down."""
    moves = np.array([0, STEP, -STEP])
    rows = real(x) + np.concatenate([moves, np.zeros(4)])[:, None] * along
    ks, lams = np.array([k] * 7, Real), np.array([lam] * 7, Real)
    ks[3:5] += moves[1:]
    lams[5:] += moves[1:]
    return topk.numbers(rows, np.ones(rows.shape, bool), ks, lams, even=False)


def slopes(values):
    """Derivatives along ``x``, in ``k`` and in ``lam``, of the rows that ``moved`` gives."""
    return [float((values[2 * i + 1] - values[2 * i + 2]) / (2 * STEP)) for i in range(3)]


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_value_is_that_of_the_definition(p):
    x = oracles.samples(6, seed=0)
    for k, lam in ((2.0, 0.3), (3.5, 1.0)):
        rows, ones = x[None], np.ones((1, 6), bool)
        given = topk.numbers(rows, ones, np.array([k]), np.array([lam]), even=False)
        mask = value.expect(given, p, Curve("identity"), FLOAT64, np.ones((1, 1))).quantities[0]
        y = oracles.generic(x, k, lam, p)
        assert float(mask.wanted[0, 0]) == pytest.approx(x @ y - lam / p * np.sum(y**p), abs=1e-9)

        # f is half the square of the k-support norm: the least of sum(y^2 / 2z) over selections z.
        magnitude = value.expect(given, p, Curve("half_square"), FLOAT64, np.ones((1, 1))).quantities[0]
        y = np.abs(oracles.generic(x, k, lam, p, "mag"))
        z = topk.solve_masked(dataclasses.replace(given, x=np.abs(given.x)), p, Curve("half_square"), FLOAT64).root.z[0]
        some = z > 0
        norm = np.sum(y[some] ** 2 / (2 * z[some]))
        wanted = np.abs(x) @ y - norm - lam / p * np.sum(y**p)
        assert float(magnitude.wanted[0, 0]) == pytest.approx(float(wanted), abs=1e-8)


@pytest.mark.parametrize("phi", ["identity", "abs", "half_square", "exp"])
def test_derivatives_of_the_value_are_limits_of_differences(phi):
    rng = np.random.default_rng(1)
    for p, lam, k in ((1.3, 0.4, 2.3), (2.0, 3.0, 3.3), (1.6, 0.1, 1.7)):
        x, along = rng.normal(size=(2, 6))
        given = moved(x, k, lam, along)
        values, *found = value.expect(given, p, Curve(phi), FLOAT64, np.ones((7, 1))).quantities
        claimed = (found[0].wanted[0] * along).sum(), found[1].wanted[0, 0], found[2].wanted[0, 0]
        np.testing.assert_allclose(np.array(claimed, float), slopes(values.wanted[:, 0]), rtol=1e-5, atol=1e-6)


def test_value_without_regularisation_is_the_sum_of_the_largest():
    given = topk.numbers(np.array([[3.0, 1.0, 2.0]]), np.ones((1, 3), bool), np.array([1.5]), np.zeros(1), even=False)
    found = value.expect(given, 2.0, Curve("identity"), FLOAT64, np.ones((1, 1))).quantities
    assert found[0].wanted[0, 0] == 4
    assert found[1].wanted.tolist() == [[1, 0, 0.5]]
    assert found[2].wanted[0, 0] == 2


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_loss_is_that_of_the_definition(p, smooth):
    rng = np.random.default_rng(2)
    for k, lam in ((2.0, 0.3), (1.5, 2.0)):
        x, along = rng.normal(size=(2, 5))
        t = np.array([0, 1.0, 0, 0, 0])
        target = t + (k - 1) / 4 * (1 - t) if smooth else t
        y = oracles.generic(x, k, lam, p)
        wanted = x @ (y - target) - lam / p * (np.sum(y**p) - np.sum(target**p))

        given = moved(x, k, lam, along)
        everyone = np.ones(given.x.shape, bool)
        answers = loss.expect(given, p, FLOAT64, np.ones((7, 1)), np.tile(t, (7, 1)), everyone, smooth).quantities
        values, *found = answers
        assert float(values.wanted[0, 0]) == pytest.approx(wanted, abs=1e-8)
        claimed = (found[0].wanted[0] * along).sum(), found[1].wanted[0, 0], found[2].wanted[0, 0]
        derivatives = slopes(values.wanted[:, 0])
        hard = found[1].wanted[0, 0] != found[1].other[0, 0]
        for i in (0, 2) if hard else (0, 1, 2):
            assert float(claimed[i]) == pytest.approx(derivatives[i], rel=1e-5, abs=1e-6)


def test_loss_is_0_at_its_target_and_its_bound_nearly():
    # A large lam: the mask is the smoothed target of nobody in particular, k / n.
    x, t = np.zeros((1, 4)), np.full((1, 4), 0.5)
    given = topk.numbers(x, np.ones((1, 4), bool), np.array([2.0]), np.array([1.0]), even=False)
    found = loss.expect(given, 2.0, FLOAT64, np.ones((1, 1)), t, np.ones((1, 4), bool), smooth=True).quantities[0]
    assert abs(found.wanted[0, 0]) < 1e-17
    assert found.bound[0, 0] < 1e-17


@pytest.mark.parametrize("k", [0.0, 1.5, 4.0])
@pytest.mark.parametrize("absent", [False, True])
def test_rows_with_nothing_to_select_have_answers(k, absent):
    zeros, ones = np.zeros((1, 4)), np.ones((1, 4))
    where = np.full((1, 4), not absent)
    for phi in ("identity", "abs", "half_square", "exp"):
        for lam in (0.0, 0.3):
            given = topk.numbers(zeros, where, np.array([k]), np.array([lam]), even=Curve(phi).even)
            answers = value.expect(given, 1.5, Curve(phi), FLOAT64, ones[:, :1]).quantities
            for debias in {False, phi == "half_square"}:
                answers = answers + topk.expect(given, 1.5, Curve(phi), FLOAT64, ones, debias).quantities
            if phi == "identity":
                for smooth in (False, True):
                    answers = answers + loss.expect(given, 1.5, FLOAT64, ones[:, :1], ones, where, smooth).quantities
            for answer in answers:
                known = np.isfinite(answer.wanted) & np.isfinite(answer.bound)
                assert (known | ~answer.judged).all(), (phi, lam, answer.name)


def test_an_entry_of_0_adds_nothing_to_the_norm_where_lam_is_0():
    """It has no sign, whatever the slope of ``phi`` at its kink."""
    given = topk.numbers(np.array([[2.0, 0, -1, 0]]), np.ones((1, 4), bool), np.array([3.0]), np.zeros(1), even=True)
    in_lam = value.expect(given, 1.5, Curve("abs"), FLOAT64, np.ones((1, 1))).quantities[3]
    assert float(in_lam.wanted[0, 0]) == pytest.approx(-2 / 1.5)
