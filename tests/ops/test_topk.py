"""The relaxed top-k of vectors: the numbers of design.md, section 1.4, the paper's bound, and what is exact."""

import jax
import numpy as np
import optax
import pytest

from ops import hard_topk_mag, sparsemax, topk_mag, topk_mask
from tests.ops import oracles

ABSENT = -np.inf  # fills rows up to five entries
FIFTHS = np.linspace(0, 1, 5)

# x, k, lam, then the mask for p = 2 and for p = 4/3
MASKS = [
    (
        FIFTHS,
        2,
        1.0,
        (0, 0.125, 0.375, 0.625, 0.875),
        (0.0023442783, 0.0561125175, 0.2534466196, 0.6880965846, 1),
    ),
    (2 * FIFTHS, 3, 1.0, (0, 0.25, 0.75, 1, 1), None),
    ((-5, -2, 3, 1, ABSENT), 2, 0.01, *2 * [(0, 0, 1, 1, 0)]),
    ((0, 0, -5, 5, ABSENT), 2, 0.01, *2 * [(0.5, 0.5, 0, 1, 0)]),
    (np.full(5, 7.0), 2, 1.0, *2 * [np.full(5, 0.4)]),
    ((-2, 0, 0.5, ABSENT, ABSENT), 1, 1.0, (0, 0.25, 0.75, 0, 0), None),  # sparsemax
]

# The same for the magnitude operator with debias.
MAGNITUDES = [
    (
        (0, 0.25, -0.5, 0.75, -1),
        2,
        1.0,
        (0, 0, -1 / 6, 2 / 3, -1),
        (0, 0.0531125104, -0.3307721326, 0.7220432312, -1),
    ),
    ((-5, -2, 3, 1, 0), 2, 0.01, *2 * [(-5, 0, 3, 0, 0)]),
]
COLUMNS = {2.0: 3, 4 / 3: 4}


def rows(table, p):
    return zip(*[(*row[:3], row[COLUMNS[p]]) for row in table if row[COLUMNS[p]] is not None], strict=True)


@pytest.mark.parametrize("p", COLUMNS)
def test_mask(x64, p):
    x, k, lam, expected = map(np.array, rows(MASKS, p))
    np.testing.assert_allclose(topk_mask(x, k, lam=lam, p=p), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("p", COLUMNS)
def test_debiased_magnitude(x64, p):
    x, k, lam, expected = map(np.array, rows(MAGNITUDES, p))
    np.testing.assert_allclose(topk_mag(x, k, lam=lam, p=p, debias=True), expected, rtol=0, atol=1e-10)


def test_figure_1(x64):
    p, expected = 4 / 3, (0.995495, 0.004505, 0, 0, 0.5)
    s = np.array([0.5, 1.5, 2.0, 3.0, 4.0])
    theta = np.stack([np.full(5, 3.0), np.full(5, 1.0), s - 1, s], axis=-1)
    mask = topk_mask(theta, 2, lam=0.6, p=p)
    np.testing.assert_allclose(mask[:, 1] + mask[:, 2], expected, rtol=0, atol=5e-7)


def test_mask_hardens_towards_p_1(x64):
    x = 0.1 * np.random.default_rng(0).permutation(40)
    hard = oracles.hard(x, 7)
    assert np.abs(topk_mask(x, 7, p=1.1, lam=0.5) - hard).max() > 0.01
    assert np.abs(topk_mask(x, 7, p=1.005, lam=0.5) - hard).max() < 1e-9
    for p, why in ((1.0, "hard operator; use lam=0"), (2.25, "above 2 derivatives are unbounded")):
        with pytest.raises(ValueError, match=rf"^p must be in \(1, 2\], got {p}: .*{why}$"):
            topk_mask(x, 7, p=p)


def test_mask_is_exactly_hard_or_sparse():
    x = oracles.samples((4000, 5), seed=8, dtype=np.float32)
    ordered = -np.sort(-x, axis=1).astype(np.float64)
    for lam in (1e-3, 0.1, 0.5):
        wide = ordered[:, 1] - ordered[:, 2] > lam * (1 + 1e-5)
        assert wide.sum() > 500
        mask = np.asarray(topk_mask(x, 2, lam=np.float32(lam), p=1.2))
        np.testing.assert_array_equal(mask[wide], np.stack([oracles.hard(row, 2) for row in x[wide]]))
        assert np.all(np.count_nonzero(mask[~wide], axis=1) > 2)
        assert np.any(mask[~wide] == 0)


X = oracles.samples((20, 40))


def test_debias_keeps_full_entries_exactly():
    x = X.astype(np.float32)
    y = np.asarray(topk_mag(x, 7, lam=0.01, p=4 / 3, debias=True))
    kept = np.abs(x) > np.sort(np.abs(x), -1)[:, -3:-2]  # the first two: 7 are asked for
    assert kept.sum() == 2 * len(x)
    np.testing.assert_array_equal(y[kept], x[kept])
    assert np.all((y == 0).sum(-1) >= 25)


def test_error_bound_of_section_5(x64):
    lam = 1e-4
    error = np.abs(topk_mag(X, 7, lam=lam) - hard_topk_mag(X, 7)).max(-1)
    assert np.all(error > 0)
    assert np.all(error <= lam * np.abs(X).max(-1) * (1 + 1e-12))


def test_derivative_in_lam_where_lam_is_0(x64):
    x, p = np.array([1.0, -3.0, 2.0, 0.5]), 4 / 3

    slope = jax.jit(lambda lam: jax.jvp(lambda lam: topk_mag(x, 2, lam=lam, p=p), (lam,), (1.0,))[1])(0.0)
    expected = np.array([0, 3 ** (p - 1), -(2 ** (p - 1)), 0])  # y + lam y^(p - 1) = x
    np.testing.assert_allclose(slope, expected, rtol=1e-12)


def test_small_entries_keep_their_digits():
    x = np.float32([[4.8940888e-27, 2.4708283e-29, 7.5706177e3, -largest] for largest in (1e3, 1e13)])
    for y, row in zip(topk_mag(x, np.float32(2.0532987), lam=np.float32(1e-12)), x, strict=True):
        np.testing.assert_allclose(y, [0.0532987 * row[0], 0, *row[2:]], rtol=1e-5)


def bisected(x, k, a=2.0):
    """``[(a - 1) x - tau]_+ ** (1 / (a - 1))``, at most 1, where it sums to ``k``: how others define these masks."""

    def mask(tau):
        return np.clip((a - 1) * x - tau, 0, 1) ** (1 / (a - 1))

    low, high = (a - 1) * x.min() - 1, (a - 1) * x.max()
    for _ in range(100):
        tau = (low + high) / 2
        low, high = (tau, high) if mask(tau).sum() > k else (low, tau)
    return mask(tau)


def test_names_that_others_use(x64):
    projected = jax.jit(optax.projections.projection_simplex)
    for x in oracles.samples((3, 7)):
        for a in (1.2, 2.0):  # alpha-entmax
            np.testing.assert_allclose(topk_mask(x, 1, lam=1 / (a - 1), p=a), bisected(x, 1, a), atol=1e-7)
        for k in (0.5, 3):  # entmax's budget_bisect, jaxopt's box section
            np.testing.assert_allclose(topk_mask(x, k, lam=1), bisected(x, k), atol=1e-7)
        for lam in (0.3, 1.0):
            np.testing.assert_allclose(sparsemax(x, lam=lam), bisected(x / lam, 1), atol=1e-7)
            with jax.numpy_dtype_promotion("standard"):
                simplex = projected(x, lam)
            np.testing.assert_allclose(lam * topk_mask(x, 1, lam=lam), simplex, atol=1e-7)
        np.testing.assert_array_equal(sparsemax(x, lam=0), np.arange(7) == np.argmax(x))
