"""Rows at the edge of the domain. All have one shape, so that each operator compiles once per dtype and ``p``."""

import jax
import numpy as np
import pytest

from ops import hard_topk_mag, hard_topk_mask, topk_mag, topk_mask
from tests.ops import oracles

SHAPE = (20, 40)
X = oracles.samples(SHAPE, dtype=np.float32)
INF = np.float32(np.inf)
PS = pytest.mark.parametrize("p", [4 / 3, 2.0])


def padded(row, fill=-INF):
    """A matrix of the common shape that starts with ``row``, extended by ``fill``."""
    x = X.copy()
    x[0] = fill
    x[0, : len(row)] = row
    return x


@PS
def test_k_0_selects_nothing_and_k_n_everything(p):
    k = np.where(np.arange(20) % 2, 0, 40)
    np.testing.assert_array_equal(topk_mask(X, k, lam=0.5, p=p), np.broadcast_to(k[:, None] / 40, SHAPE))
    y = topk_mag(X, k, lam=0.5, p=p, debias=True)
    np.testing.assert_array_equal(y, np.where(k[:, None] > 0, X, 0))


@PS
def test_minus_inf_leaves_the_rest_as_if_absent(p):
    x = np.float32([0.3, 1.0, 0.8, -0.2, 0.9])
    expected = oracles.pooled(x, 2, 0.5, p)
    mask = np.asarray(topk_mask(padded(x), 2, lam=0.5, p=p))[0]
    np.testing.assert_allclose(mask[:5], expected, atol=1e-6)
    assert np.all(mask[5:] == 0)


@PS
def test_fewer_present_than_k_are_all_selected(p):
    mask = topk_mask(padded(np.float32([3, 1, 2])), 5, lam=0.5, p=p)
    assert np.asarray(mask)[0].tolist() == [1, 1, 1] + 37 * [0]


@PS
def test_all_absent_gives_zeros(p):
    mask = np.asarray(topk_mask(padded([]), 5, lam=0.5, p=p))
    assert np.all(mask[0] == 0)
    np.testing.assert_allclose(mask[1:].sum(-1), 5, rtol=1e-6)


@PS
def test_a_single_entry_present(p):
    mask = np.asarray(topk_mask(padded([-7.0]), np.r_[0.25, np.full(19, 5)], lam=0.5, p=p))
    np.testing.assert_allclose(mask[0, 0], 0.25, rtol=1e-6)


@PS
def test_plus_inf_comes_first(p):
    x = np.float32([1, INF, 2, INF, 3])
    mask = np.asarray(topk_mask(padded(x, fill=0.0), 3, lam=0.5, p=p))[0]
    np.testing.assert_allclose(mask[:5], [0, 1, 0, 1, 1], atol=1e-6)
    assert np.all(mask[5:] == 0)


@PS
def test_more_plus_inf_than_k_share(p):
    mask = np.asarray(topk_mask(padded(np.float32([INF, 0, INF, INF, 1]), fill=0.0), 2, lam=0.5, p=p))[0]
    np.testing.assert_allclose(mask[:5], [2 / 3, 0, 2 / 3, 2 / 3, 0], atol=1e-6)


@PS
def test_infinite_magnitudes_come_first(p):
    y = topk_mag(padded(np.float32([1, -INF, 2]), fill=0.0), 2, lam=0.01, p=p, debias=True)
    np.testing.assert_allclose(np.asarray(y)[0, :4], [0, -np.inf, 2, 0], atol=2e-6)


@PS
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scales(p, scale):
    scale = np.float32(scale)
    expected = topk_mask(X, 7, lam=0.5, p=p)
    np.testing.assert_allclose(topk_mask(X * scale, 7, lam=0.5 * scale, p=p), expected, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scales_of_magnitude(scale):
    scale = np.float32(scale)
    expected = scale * topk_mag(X, 7, lam=0.5)
    np.testing.assert_allclose(topk_mag(X * scale, 7, lam=0.5), expected, rtol=1e-4, atol=1e-6 * scale)


@PS
def test_every_size_of_lam(p):
    lam = np.geomspace(1e-8, 1e8, 20).astype(np.float32)
    expected = oracles.by_rows(lambda *row: oracles.pooled(*row, p=p), X, 7, lam)
    mask = np.asarray(topk_mask(X, 7, lam=lam, p=p))
    np.testing.assert_allclose(mask, expected, atol=2e-4)
    np.testing.assert_allclose(mask.sum(-1), np.full(20, 7), rtol=1e-6)


@PS
def test_every_size_of_lam_for_magnitude(p):
    lam = np.geomspace(1e-8, 1e8, 20).astype(np.float32)
    expected = oracles.by_rows(lambda *row: oracles.pooled(*row, p, "magnitude"), X, 7, lam)
    np.testing.assert_allclose(topk_mag(X, 7, lam=lam, p=p), expected, rtol=1e-3, atol=1e-5)


TIED = np.round(2 * X) / 2


def test_lam_0_is_the_hard_operator():
    expected = np.stack([oracles.hard(x, 7) for x in TIED])
    np.testing.assert_array_equal(topk_mask(TIED, 7, lam=0), expected)
    np.testing.assert_array_equal(topk_mag(TIED, 7, lam=0), hard_topk_mag(TIED, 7))
    np.testing.assert_array_equal(topk_mag(TIED, 7, lam=0, debias=True), hard_topk_mag(TIED, 7))


@pytest.mark.parametrize("compiled", [False, True])
def test_lam_0_in_some_rows(compiled):
    lam = np.where(np.arange(20) % 2, 0, 0.5).astype(np.float32)

    def both(x, lam):
        return topk_mask(x, 7, lam=lam), topk_mag(x, 7, lam=lam)

    mask, mag = jax.device_get((jax.jit(both) if compiled else both)(TIED, lam))
    odd = np.arange(20) % 2 == 1
    np.testing.assert_array_equal(mask[odd], np.asarray(hard_topk_mask(TIED, 7))[odd])
    np.testing.assert_array_equal(mag[odd], np.asarray(hard_topk_mag(TIED, 7))[odd])
    np.testing.assert_allclose(mask[~odd], np.asarray(topk_mask(TIED, 7, lam=0.5))[~odd], atol=1e-6)
    np.testing.assert_allclose(mag[~odd], np.asarray(topk_mag(TIED, 7, lam=0.5))[~odd], atol=1e-6)


@PS
def test_lam_far_below_the_resolution_of_x(p):
    # Around 1e6 floats are 1/16 apart, and lam is 1e-6: the root lies between two neighbouring floats.
    x = np.float32(1e6) + np.round(8 * X) / 8
    ks = np.where(np.arange(20) % 2, 7, 7.5)
    mask = topk_mask(x, ks, lam=1e-6, p=p)
    np.testing.assert_allclose(np.asarray(mask).sum(-1), ks, rtol=1e-6)
    for row, y, k in zip(x, np.asarray(mask), ks, strict=True):
        boundary = np.sort(row)[::-1][int(np.ceil(k)) - 1]
        assert np.all(y[row > boundary] == 1)
        assert np.all(y[row < boundary] == 0)
        np.testing.assert_allclose(
            y[row == boundary], (k - np.sum(row > boundary)) / np.sum(row == boundary), rtol=1e-5
        )


@PS
def test_nan_poisons_its_row_alone(p):
    x = X.copy()
    x[3, 5] = np.nan
    others = np.arange(20) != 3
    for operator in (topk_mask, topk_mag):
        y, clean = np.asarray(operator(x, 7, lam=0.5, p=p)), np.asarray(operator(X, 7, lam=0.5, p=p))
        assert np.isnan(y[3]).all()
        np.testing.assert_array_equal(y[others], clean[others])


def test_nan_poisons_its_row_of_the_hard_operators():
    x = X.copy()
    x[3, 5] = np.nan
    others = np.arange(20) != 3
    for operator in (hard_topk_mask, hard_topk_mag):
        y = np.asarray(operator(x, 7))
        assert np.isnan(y[3]).all()
        np.testing.assert_array_equal(y[others], np.asarray(operator(X, 7))[others])


@pytest.mark.parametrize("name", ["k", "lam"])
@pytest.mark.parametrize("operator", [topk_mask, topk_mag])
def test_nan_parameter_poisons_its_row_alone(operator, name):
    arguments = {"k": np.full(20, 7.0, np.float32), "lam": np.full(20, 0.5, np.float32)}
    arguments[name][3] = np.nan
    y = np.asarray(operator(X, **arguments))
    assert np.isnan(y).all(-1).tolist() == [i == 3 for i in range(20)]
    assert not np.isnan(y[np.arange(20) != 3]).any()


@pytest.mark.parametrize("operator", [topk_mask, topk_mag, hard_topk_mask, hard_topk_mag])
def test_one_entry(operator):
    x = np.float32([[-3], [0], [5]])
    k = np.array([1, 1, 0])
    kept = {"mask": [[1], [1], [0]], "mag": [[-3], [0], [0]]}["mask" if "mask" in operator.__name__ else "mag"]
    scale = 1 / 1.1 if operator is topk_mag else 1.0
    np.testing.assert_allclose(operator(x, k), np.float32(kept) * scale, rtol=1e-6)


def test_of_an_infinite_entry_that_is_alone_nothing_may_be_wanted():
    """It lies at the very end of the numbers that the threshold is searched among."""
    np.testing.assert_array_equal(topk_mask(np.float32([INF]), 0, lam=1e-3), [0])
