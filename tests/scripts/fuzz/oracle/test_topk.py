"""The fuzz's oracle against others still: fractions, decimals of fifty digits, a generic convex solver, differences."""

import decimal
import itertools
from fractions import Fraction

import numpy as np
import pytest

from scripts.fuzz.oracle import operator, topk
from scripts.fuzz.oracle.equation import Curve
from scripts.fuzz.oracle.reals import EXTENDED, Real, real
from scripts.fuzz.oracle.rounding import Precision
from tests.ops import oracles

pytestmark = pytest.mark.skipif(not EXTENDED, reason="the oracle needs more than float64")
FLOAT64 = Precision(2.0**-52, 2.3e-308)
DIGITS = 50


def answers(x, k, lam, p, phi, cotangent=None, debias=False):
    """Value and derivatives in ``x``, ``k`` and ``lam`` of one row."""
    rows = np.atleast_2d(x)
    curve = Curve(phi)
    given = topk.numbers(rows, np.ones(rows.shape, bool), np.array([k]), np.array([lam]), curve.even)
    cotangent = np.zeros(rows.shape) if cotangent is None else cotangent
    return topk.expect(given, p, curve, FLOAT64, cotangent, debias).quantities


def exact_mask(x, k, lam):
    """The mask for p = 2 in rational numbers: every split of the sorted entries is tried."""
    s = sorted((Fraction(float(value)) for value in x), reverse=True)
    k, lam, n = Fraction(float(k)), Fraction(float(lam)), len(s)
    for full, active in itertools.product(range(n + 1), range(n + 1)):
        block = s[full : full + active]
        if full + active > n or not (block or full == k):
            continue
        gamma = (sum(block) - lam * (k - full)) / active if active else s[full - 1] - lam if full else s[0]
        selected = [min(max((value - gamma) / lam, Fraction(0)), Fraction(1)) for value in s]
        if sum(selected) == k:
            return [min(max((Fraction(float(value)) - gamma) / lam, Fraction(0)), Fraction(1)) for value in x]
    raise AssertionError("no split fits")


@pytest.mark.parametrize("shift", [0.0, 1e6, -1e15])
def test_mask_is_that_of_rational_arithmetic(shift):
    rng = np.random.default_rng(0)
    for lam in (1e-3, 0.3, 2.0, 1e9):
        x = shift + rng.normal(size=6).round(3)
        k = float(rng.choice([1, 2, 5, 2.625]))
        wanted = [float(value) for value in exact_mask(x, k, lam)]
        np.testing.assert_allclose(answers(x, k, lam, 2.0, "identity")[0].wanted[0].astype(float), wanted, rtol=1e-15)


def precise(x, k, lam, p, phi):
    """The operator, and how much is selected, in decimals of fifty digits, by plain bisection of ``gamma``.

    Entries selected fully are as if they were selected in part.
    """
    with decimal.localcontext(prec=DIGITS, Emin=-(10**9), Emax=10**9):
        number = decimal.Decimal
        exponent = 1 / (number(p) - 1)
        s = [abs(number(float(value))) if phi == "half_square" else number(float(value)) for value in x]
        k, lam = number(float(k)), number(float(lam))

        def selected(gamma):
            width = lam * gamma ** (1 / exponent) if phi == "half_square" else lam
            positions = [min(max((value - gamma) / width, number(0)), number(1)) for value in s]
            return [t**exponent if t else number(0) for t in positions]

        low, high = (number("1e-60") if phi == "half_square" else min(s) - lam), max(s)
        for _ in range(230):
            middle = (low * high).sqrt() if phi == "half_square" and high > 2 * low else (low + high) / 2
            low, high = (middle, high) if sum(selected(middle)) > k else (low, middle)
        z = selected(low)
        kept = [number(float(np.sign(value))) * low * share for value, share in zip(x, z, strict=True)]
        return [np.array([Real(str(digits)) for digits in values]) for values in (z if phi == "identity" else kept, z)]


@pytest.mark.parametrize("phi", ["identity", "half_square"])
@pytest.mark.parametrize("p", [1.05, 4 / 3, 1.7])
def test_operator_is_that_of_fifty_digits(phi, p):
    rng = np.random.default_rng(1)
    for lam, k in ((1.0, 1.5), (40.0, 2.0)):
        x = rng.normal(size=4)
        (value, *_) = answers(x, k, lam, p, phi)
        wanted, selected = precise(x, k, lam, p, phi)
        partly = (selected > 0) & (selected < 1)
        np.testing.assert_allclose((value.wanted[0][partly] / wanted[partly] - 1).astype(float), 0.0, atol=1e-16)
        assert partly.any()
        assert (value.wanted[0][selected == 0] == 0).all()


@pytest.mark.parametrize("kind", ["mask", "mag"])
@pytest.mark.parametrize("p", [4 / 3, 1.6, 2.0])
def test_operator_is_that_of_a_generic_convex_solver(kind, p):
    x = oracles.samples(6, seed=2)
    for k, lam in ((2, 0.3), (3.5, 1.0)):
        phi = "identity" if kind == "mask" else "half_square"
        wanted = oracles.generic(x, k, lam, p, kind)
        np.testing.assert_allclose(answers(x, k, lam, p, phi)[0].wanted[0].astype(float), wanted, atol=1e-5)


def test_known_numbers():
    x = np.array([0, 0.25, 0.5, 0.75, 1])
    mask = [0.0023442783, 0.0561125175, 0.2534466196, 0.6880965846, 1]
    np.testing.assert_allclose(answers(x, 2, 1.0, 4 / 3, "identity")[0].wanted[0].astype(float), mask, atol=1e-10)
    magnitude = [0, 0.0531125104, -0.3307721326, 0.7220432312, -1]
    found = answers(x * [1, 1, -1, 1, -1], 2, 1.0, 4 / 3, "half_square", debias=True)
    np.testing.assert_allclose(found[0].wanted[0].astype(float), magnitude, atol=1e-10)
    np.testing.assert_array_equal(answers(np.ones(4), 2, 0.0, 2.0, "identity")[0].wanted[0], [1, 1, 0, 0])


@pytest.mark.parametrize(
    ("phi", "debias"),
    [("identity", False), ("abs", False), ("half_square", False), ("half_square", True), ("exp", False)],
)
def test_derivatives_are_limits_of_differences(phi, debias):
    rng = np.random.default_rng(3)
    step = Real(1e-7)
    compared = np.zeros(3, int)
    for p, lam, k in itertools.product((1.2, 2.0), (0.3, 5.0), (2.0, 3.3, 4.1)):
        x, cotangent, along = real(rng.normal(size=(3, 6)))
        moves = np.array([0, step, -step])
        # The row itself, and three pairs of rows with x, k and lam moved either way.
        rows = x + np.concatenate([moves, np.zeros(4)])[:, None] * along
        ks, lams = np.array([k] * 7, Real), np.array([lam] * 7, Real)
        ks[3:5] += moves[1:]
        lams[5:] += moves[1:]
        curve = Curve(phi)
        given = topk.numbers(rows, np.ones(rows.shape, bool), ks, lams, curve.even)
        weights = np.broadcast_to(cotangent, rows.shape)
        value, *found = topk.expect(given, p, curve, FLOAT64, weights, debias).quantities
        sums = (value.wanted * cotangent).sum(axis=1)
        claimed = (found[0].wanted[0] * along).sum(), found[1].wanted[0, 0], found[2].wanted[0, 0]
        for i, derivative in enumerate(claimed):
            difference = (sums[2 * i + 1] - sums[2 * i + 2]) / (2 * step)
            if found[i].judged[0, 0] and (i != 1 or k % 1):  # at a whole k the sides may differ
                assert float(derivative) == pytest.approx(float(difference), rel=1e-4, abs=1e-6)
                compared[i] += 1
    assert (compared >= 4).all()


@pytest.mark.parametrize("debias", [False, True])
def test_one_sided_derivatives_in_k_of_a_hard_row(debias):
    x, cotangent = np.array([[5.0, 3.0, 3.0, 1.0]]), np.array([[1.0, 2.0, 4.0, 8.0]])
    step = Real(1e-10)
    for phi, p in (("identity", 1.5), ("half_square", 2.0)):

        def weighted(k, phi=phi, p=p):
            return (answers(x, k, Real(0.1), p, phi, debias=debias and phi != "identity")[0].wanted * cotangent).sum()

        for k, side in ((0, step), (1, -step), (3, -step), (4, -step)):
            found = answers(x, Real(k), Real(0.1), p, phi, cotangent, debias and phi != "identity")[2]
            difference = (weighted(k + side) - weighted(k)) / side
            assert float(found.wanted[0, 0]) == pytest.approx(float(difference), rel=1e-3)
            np.testing.assert_array_equal(found.other, found.wanted)


@pytest.mark.parametrize(("k", "wanted"), [(0, 1), (1, 1), (1.5, 2), (2, 2), (3, 4), (4, 8), (5, 0)])
def test_derivative_in_k_without_regularisation_is_of_the_last_selected(k, wanted):
    x, cotangent = np.array([[5.0, 3.0, 3.0, 1.0, -np.inf]]), np.array([[1.0, 2.0, 4.0, 8.0, 16.0]])
    found = answers(x, Real(k), Real(0), 1.5, "identity", cotangent)[2]
    assert found.judged.all()
    assert found.wanted[0, 0] == wanted
    found = answers(x[:, :4], Real(k), Real(0), 1.5, "half_square", cotangent[:, :4])[2]
    assert found.wanted[0, 0] == wanted * {1: 5, 2: 3, 4: 3, 8: 1, 0: 0}[wanted]


@pytest.mark.parametrize(("p", "debias"), [(2.0, False), (2.0, True), (1.5, True), (1.5, False)])
def test_entries_that_are_0_move_where_there_is_room_for_all(p, debias):
    for x, k, judged in (([0.0, 2.0, 0.0], 3, True), ([0.0, 2.0, 1.0], 2, True), ([0.0, 2.0, 0.0], 2, False)):
        near = np.array([x, np.maximum(x, [1e-40, 0, 0])])
        given = topk.numbers(near, np.ones((2, 3), bool), np.full(2, k), np.full(2, 0.3), even=True)
        value, found = topk.expect(given, p, Curve("half_square"), FLOAT64, np.ones((2, 3)), debias).quantities[:2]
        limit = float(value.wanted[1, 0] / Real(1e-40))
        assert abs(float(found.wanted[0, 0]) - limit) <= float(found.bound[0, 0]) + 1e-12
        assert (found.bound[0, 0] < 1e-12) or not judged


def test_hard_operator_keeps_entries_that_are_0():
    x, where = np.array([[1.0, 0.0, 2.0]]), np.array([[False, True, True]])
    given = topk.numbers(x, where, np.array([3.0]), np.zeros(1), even=True)
    found = topk.expect(given, 2.0, Curve("half_square"), FLOAT64, np.ones((1, 3))).quantities[1]
    assert found.judged.all()
    assert found.wanted.tolist() == found.other.tolist() == [[0, 1, 1]]


def test_no_answer_is_given_at_a_kink():
    # The second entry is just about to be selected, the first just about to be selected fully.
    found = answers(np.array([1.0, 0.0]), 1, 1.0, 2.0, "identity", np.ones((1, 2)))
    assert not found[1].judged[0, 0]
    assert answers(np.array([1.0, 0.1]), 1, 1.0, 2.0, "identity", np.ones((1, 2)))[1].judged[0, 0]


def test_bounds_are_a_few_units_of_rounding():
    x = oracles.samples((50, 16), seed=4)
    given = topk.numbers(x, np.ones(x.shape, bool), np.full(50, 4.0), np.full(50, 1.0), even=False)
    for p, most in ((2.0, 40), (4 / 3, 80)):
        value = topk.expect(given, p, Curve("identity"), FLOAT64, np.zeros(x.shape)).quantities[0]
        assert 0 < value.bound.max() < most * FLOAT64.unit


def test_an_interval_of_thresholds_without_a_length_is_none():
    # Where the four smaller entries begin to be selected, the others begin not to be in full.
    x = np.array([[2.0] * 6 + [1.0] * 4])
    for lam, least, most in ((1.0, 1e-3, 1), (0.5, 0, 0)):
        value = answers(x, 6, lam, 1.15, "half_square", debias=True)[0]
        np.testing.assert_array_equal(value.wanted, [[2] * 6 + [0] * 4])
        assert least <= value.bound[0, 6:].min() <= value.bound[0, 6:].max() <= most


def test_exponentials_far_beyond_float64_have_answers():
    found = answers(np.array([8e36, -8e36]), 1, 1e-25, 2.0, "exp")[0].wanted[0]
    np.testing.assert_allclose((found / Real(8e61)).astype(float), [1, 0])


def test_bounds_do_not_grow_with_the_distance_from_0():
    x = 1e6 + np.array([[0.0, 1.0, 2.0, 3.0]])
    value = answers(x, 1.5, 0.9, 4 / 3, "identity")[0]
    near = answers(x - 1e6, 1.5, 0.9, 4 / 3, "identity")[0]
    np.testing.assert_allclose(value.wanted.astype(float), near.wanted.astype(float), rtol=1e-15)
    np.testing.assert_allclose(value.bound.astype(float), near.bound.astype(float), rtol=1e-6)


def test_shares_of_a_solved_row_add_up():
    x = real(oracles.samples((20, 9), seed=5))
    given = topk.numbers(x, np.ones(x.shape, bool), np.full(20, 3.3), np.full(20, 0.7), even=False)
    solved = topk.solve_masked(given, 1.1, Curve("identity"), FLOAT64)
    np.testing.assert_allclose(solved.root.z.sum(axis=1).astype(float), 3.3, rtol=1e-15)
    assert operator.value(solved, np.ones_like(x)).wanted.max() <= 1
