"""The fuzz's answers for groups: of sizes that are plain to see, and derivatives against differences."""

import numpy as np
import pytest

from scripts.fuzz import grouping
from scripts.fuzz.oracle import grouped
from scripts.fuzz.oracle.equation import Curve
from scripts.fuzz.oracle.reals import EXTENDED, Real, real
from scripts.fuzz.oracle.rounding import Precision
from tests.ops import oracles

pytestmark = pytest.mark.skipif(not EXTENDED, reason="the oracle needs more than float64")
FLOAT64 = Precision(2.0**-52, 2.3e-308)
MEMBERS = np.array([0, 0, 1, 1, 1, 2, 2, 2, 2])


def of(x, k, lam, cotangent=None, members=MEMBERS):
    x = np.atleast_2d(x)
    cotangent = np.zeros(x.shape) if cotangent is None else np.broadcast_to(cotangent, x.shape)
    every = np.ones(len(x), Real)
    return grouped.Grouped(x, k * every, lam * every, cotangent, members)


def values(truth):
    return truth.quantities[0].wanted.astype(float)


def test_which_entry_belongs_to_which_group():
    counts = {"blocks": [4, 4, 2, 2], "channels": [2] * 4 + [1] * 4, "runs": [4, 4, 4]}
    for name in grouping.GROUPS:
        found = np.bincount(grouping.members(name, 12))
        assert found.tolist() == counts[name]
        assert grouping.number(name, 12) == (4 if name == "runs" else len(found))
    assert grouping.members("blocks", 12).tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3]
    assert grouping.members("channels", 12).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7]
    assert grouping.members("runs", 12).tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 2, 2, 2, 2]


def test_groups_are_scaled_and_masked_whole():
    x = np.array([3.0, 3, 1, -1, 1, 2, -2, 2, 2])
    sizes, means = np.array([3.0, 1, 2]), np.array([3, 1 / 3, 1])
    for lam, p in ((0.3, 2.0), (1.0, 1.5)):
        kept = oracles.pooled(sizes, 1.4, lam, p, kind="mag") / sizes
        truth = grouped.expect(of(x, 1.4, lam), p, Curve("half_square"), FLOAT64, False, False)
        np.testing.assert_allclose(values(truth)[0], x * kept[MEMBERS], rtol=1e-12)
        mask = oracles.pooled(means, 1.4, lam, p)
        truth = grouped.expect(of(x, 1.4, lam), p, Curve("identity"), FLOAT64, False, False)
        np.testing.assert_allclose(values(truth)[0], mask[MEMBERS], rtol=1e-12)
    hard = grouped.expect(of(x, 2.0, 0.0), 2.0, Curve("half_square"), FLOAT64, False, True)
    np.testing.assert_array_equal(values(hard)[0], np.where(MEMBERS == 1, 0, x))


def test_runs_compete_among_themselves():
    x, members = np.array([3.0, 5, 1, -4, 2, 2]), np.array([0, 1, 0, 1, 0, 1])
    truth = grouped.expect_runs(of(x, 1.5, 0.4, members=members), 2.0, Curve("half_square"), FLOAT64, True)
    for run in (0, 1):
        expected = oracles.pooled(x[members == run], 1.5, 0.4, kind="mag", debias=True)
        np.testing.assert_allclose(values(truth)[0][members == run], expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["identity", "half_square", "runs"])
@pytest.mark.parametrize(("p", "debias"), [(2.0, False), (1.5, True)])
def test_derivatives_are_limits_of_differences(kind, p, debias):
    rng, step, compared = np.random.default_rng(2), Real(1e-9), 0
    members = np.arange(9) % 3 if kind == "runs" else MEMBERS
    curve, debias = Curve("identity" if kind == "identity" else "half_square"), debias and kind != "identity"
    for _ in range(6):
        x, h, along = real(rng.normal(size=(3, 9)))
        shifts = step * np.concatenate([np.eye(3), -np.eye(3)]).astype(Real)

        def answers(shifts, x=x, h=h, along=along):
            given = of(x + shifts[:, :1] * along, Real(1.4) + shifts[:, 1], Real(0.8) + shifts[:, 2], h, members)
            if kind == "runs":
                return grouped.expect_runs(given, p, curve, FLOAT64, debias).quantities
            return grouped.expect(given, p, curve, FLOAT64, debias, False).quantities

        sums = (answers(shifts)[0].wanted * h).sum(axis=1)
        _, *derivatives = answers(np.zeros((1, 3), Real))
        for i, quantity in enumerate(derivatives):
            if quantity.judged[0, 0]:
                compared += 1
                claimed = (quantity.wanted * along).sum() if i == 0 else quantity.wanted[0, 0]
                assert float(claimed) == pytest.approx(float((sums[i] - sums[3 + i]) / (2 * step)), rel=1e-6, abs=1e-8)
    assert compared > 12


def test_a_group_of_zeros_moves_by_what_the_others_leave():
    x, h = np.array([3.0, 3, 1, -1, 1, 0, 0, 0, 0]), np.arange(9.0) + 1
    for k, moves in ((2.0, 0), (2.5, 0.5 / 1.25), (3.0, 1 / 1.5)):
        quantities = grouped.expect(of(x, k, 0.5, h), 2.0, Curve("half_square"), FLOAT64, False, False).quantities
        np.testing.assert_allclose(quantities[1].wanted[0, 5:].astype(float), moves * h[5:])
