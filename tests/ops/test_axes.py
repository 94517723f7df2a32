"""Axes, batches of any shape, empty arrays, entries that do not take part, infinities and NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ops
from ops import hard_topk_mag, topk_mag, topk_mask
from ops.interface import share_of
from tests.ops import oracles

X = oracles.samples((4, 6, 6), dtype=np.float32)  # the last two as long: rows along either compile one program


def test_batches_of_nothing():
    for shape, k in (((0, 6), 2), ((3, 0, 6), 2), ((3, 0), 0)):
        for operator in (topk_mask, hard_topk_mag):
            assert operator(np.zeros(shape, np.float32), k).shape == shape
    assert topk_mask(X[:, :0], 0, axis=(0, 1)).shape == (4, 0, 6)


def test_k_and_lam_vary_along_other_axes():
    k, lam = np.arange(24).reshape(4, 6) % 5 + 0.5, np.linspace(0.1, 2, 6)
    where = np.array([True, False, True, True, True, True])
    y = np.asarray(topk_mask(X, k, lam=lam, axis=1, where=where[:, None]))
    assert np.all(y[:, 1] == 0)
    for i, j in np.ndindex(4, 6):
        np.testing.assert_allclose(y[i, where, j], oracles.pooled(X[i, where, j], k[i, j], lam[j]), atol=1e-6)
    nothing = topk_mask(X, k, lam=lam, axis=1, where=np.zeros((6, 1), bool))
    assert np.all(np.asarray(nothing) == 0)


def test_one_value_for_several_axes():
    for axis, shape in (((0, 2), (6,)), (None, ())):
        assert jax.eval_shape(lambda x, axis=axis: ops.relaxed_topk_value(x, 3, axis=axis), X).shape == shape


def test_a_density_of_many_entries_is_exact():
    for density, n, k in (
        (0.95, 10**7, 9_500_000),
        (0.1, 25 * 10**6, 2_500_000),
        (0.888888, 10**6, 888_888),
        (0.29, 100, 29),
    ):
        for given in (density, np.float32(density), np.float64(density), jnp.float32(density)):
            assert share_of(given, n, np.float32) == k
    assert share_of(0.8888889, 10**6, np.float32) == 888_888
    traced = jax.jit(lambda density: share_of(density, 10**7, np.float32))
    assert traced(0.95) == 9_500_000
    assert traced(0.0) == 0


def test_known_and_traced_density_agree():
    random = np.random.default_rng(0)
    for size in (70, 23520, 10**7):
        for dtype in (np.float32, jnp.bfloat16):
            density = (random.integers(0, size + 1, 500) / size).astype(dtype)
            traced = jax.jit(lambda density, size=size: share_of(density, size, np.float32))(density)
            np.testing.assert_array_equal(share_of(density, size, np.float32), traced)
            np.testing.assert_array_equal(share_of(jnp.asarray(density), size, np.float32), traced)


# Entries that rows begin with, what fills them, k, and the mask of these entries.
INFINITE = [
    ([3, 1, 2], -np.inf, 5, [1, 1, 1]),  # fewer than k take part
    ([], -np.inf, 5, []),
    ([-7], -np.inf, 0.25, [0.25]),
    ([1, np.inf, 2, np.inf, 3], 0, 3, [0, 1, 0, 1, 1]),
    ([np.inf, 0, np.inf, np.inf, 1], 0, 2, [2 / 3, 0, 2 / 3, 2 / 3, 0]),
    ([np.inf], -np.inf, 0, [0]),
]


def test_minus_inf_is_absent_inf_comes_first():
    p = 4 / 3
    x, k = oracles.samples((20, 40), dtype=np.float32), np.full(20, 7.0, np.float32)
    expected = np.zeros((len(INFINITE), 40))
    for row, (entries, fill, count, mask) in enumerate(INFINITE):
        x[row], k[row] = fill, count
        x[row, : len(entries)], expected[row, : len(entries)] = entries, mask
    found = np.asarray(topk_mask(x, k, lam=0.5, p=p))
    np.testing.assert_allclose(found[: len(INFINITE)], expected, atol=1e-6)
    np.testing.assert_allclose(found[len(INFINITE) :].sum(axis=1), 7, rtol=1e-6)
    x[0] = [1, -np.inf, 2, *37 * [0]]
    kept = topk_mag(x, np.full(20, 2), lam=0.01, p=p, debias=True)
    np.testing.assert_allclose(kept[0, :4], [0, -np.inf, 2, 0], atol=2e-6)


def test_nan_parameter_poisons_its_row_alone():
    x = oracles.samples((20, 40), dtype=np.float32)
    k, lam = np.full(20, 7.0, np.float32), np.full(20, 0.5, np.float32)
    k[3] = lam[5] = np.nan
    marked = np.isnan(jax.jit(topk_mask)(x, k, lam=lam))
    np.testing.assert_array_equal(marked, np.broadcast_to(np.isin(np.arange(20), (3, 5))[:, None], x.shape))


@pytest.mark.parametrize("operator", [hard_topk_mag, topk_mask])
def test_nan_entry_makes_its_row_nan(operator):
    """XLA's CPU backend drops NaNs from the maximum of longer arrays."""
    x = np.tile(np.float32([0.1, 0.2, np.nan, 0.1, 0.3, 0.1]), (1024, 1))
    for k in (0, 2, 6):
        assert np.all(np.isnan(operator(x, k)))
