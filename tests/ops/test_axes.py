"""Axes, batches of any shape, empty arrays, and entries that do not take part."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ops
from ops import hard_topk_mag, hard_topk_mask, topk_mag, topk_mask
from ops.interface.arguments import share_of
from tests.ops import oracles

ALL = [topk_mask, topk_mag, hard_topk_mask, hard_topk_mag]
X = oracles.samples((4, 6, 6), dtype=np.float32)  # the last two as long: rows along either compile one program


@pytest.mark.parametrize(("operator", "axis"), [*((f, 1) for f in ALL), (topk_mask, 0), (topk_mask, -2)])
def test_axis(operator, axis):
    expected = np.moveaxis(np.asarray(operator(np.moveaxis(X, axis, -1), 2)), -1, axis)
    np.testing.assert_array_equal(operator(X, 2, axis=axis), expected)
    assert not np.array_equal(expected, operator(X, 2))


@pytest.mark.parametrize("operator", ALL)
def test_vector_and_batches_agree(operator):
    np.testing.assert_array_equal(operator(X[1, 2], 2), operator(X, 2)[1, 2])


def test_k_and_lam_per_row():
    k, lam = np.arange(24).reshape(4, 6) % 5 + 0.5, np.linspace(0.1, 2, 6)
    y = np.asarray(topk_mask(X, k, lam=lam, axis=1))
    for i in range(4):
        for j in range(6):
            np.testing.assert_allclose(y[i, :, j], oracles.pooled(X[i, :, j], k[i, j], lam[j]), atol=1e-6)


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_gradient_of_a_batch_of_single_rows(p):
    def loss(x):
        return jnp.sum(topk_mask(x, 2, lam=1.0, p=p) ** 2)

    x, gradient = X[:, :1], jax.jit(jax.grad(loss))
    rows = np.stack([gradient(row) for row in x[:, 0]])
    assert np.abs(rows).max() > 0
    np.testing.assert_allclose(gradient(x)[:, 0], rows, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator", ALL)
@pytest.mark.parametrize("shape", [(0, 5), (3, 0, 5)])
def test_no_rows(operator, shape):
    assert operator(np.zeros(shape, np.float32), 2).shape == shape


@pytest.mark.parametrize("operator", ALL)
def test_no_entries(operator):
    assert operator(np.zeros((3, 0), np.float32), 0).shape == (3, 0)


WHERE = np.arange(36).reshape(6, 6) % 3 > 0  # the same four of six in every row


@pytest.mark.parametrize("operator", ALL)
def test_where_is_as_if_absent(operator):
    # -inf is absent from a mask, as `test_edge_cases.py` makes sure, and 0 from what is kept of larger magnitudes.
    absent = -np.inf if operator in (topk_mask, hard_topk_mask) else 0.0
    y = np.asarray(operator(X, 2, where=WHERE))
    np.testing.assert_allclose(y, operator(np.where(WHERE, X, np.float32(absent)), 2), atol=1e-6)
    assert np.all(y[..., ~WHERE[0]] == 0)
    assert not np.array_equal(y, operator(X, 2))


@pytest.mark.parametrize("hidden", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("operator", ALL)
def test_what_lies_under_where_does_not_matter(operator, hidden):
    np.testing.assert_array_equal(operator(np.where(WHERE, X, hidden), 2, where=WHERE), operator(X, 2, where=WHERE))


@pytest.mark.parametrize("operator", [topk_mask, topk_mag])
def test_where_stops_gradients(operator):
    slope = jax.jit(jax.grad(lambda x: jnp.sum(operator(x, 2, lam=1.0, p=4 / 3, where=WHERE) ** 2)))
    for hidden in (7.0, np.nan):
        gradient = slope(np.where(WHERE, X, hidden).astype(np.float32))
        assert np.all(np.where(WHERE, 0, gradient) == 0)
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0


def test_where_along_another_axis():
    where = np.array([True, False, True, True, True, True])[:, None]
    y = np.asarray(topk_mask(X, 2, axis=1, where=where))
    assert np.all(y[:, 1] == 0)
    np.testing.assert_allclose(y.sum(1), np.full((4, 6), 2), rtol=1e-6)


def test_nowhere():
    assert np.all(np.asarray(topk_mask(X, 2, where=np.zeros(6, bool))) == 0)


SEVERAL = [(0, 2), (-1, 0), (1, 2), (0, 1, 2), None, (1,)]


def masks_by_hand(rows, k):
    return oracles.by_rows(oracles.pooled, rows, k, 0.1)


def magnitudes_by_hand(rows, k):
    return oracles.by_rows(lambda row, k, lam: row * oracles.hard(np.abs(row), k), rows, k, 0.0)


@pytest.mark.parametrize("axis", SEVERAL)
@pytest.mark.parametrize(("operator", "by_hand"), [(topk_mask, masks_by_hand), (hard_topk_mag, magnitudes_by_hand)])
def test_entries_compete_over_several_axes(operator, by_hand, axis):
    along = sorted(range(3) if axis is None else [one % 3 for one in axis])
    rest = [i for i in range(3) if i not in along]
    rows = np.transpose(X, rest + along).reshape(*(X.shape[i] for i in rest), -1)
    k = np.arange(rows[..., 0].size).reshape(rows.shape[:-1]) % 5 + 2
    expected = by_hand(rows.reshape(-1, rows.shape[-1]), k.ravel()).reshape([X.shape[i] for i in rest + along])
    found = operator(X, k, axis=axis, where=np.ones((6, 6), bool))
    np.testing.assert_allclose(found, np.transpose(expected, np.argsort(rest + along)), atol=1e-6)


def test_one_value_for_several_axes():
    @jax.jit
    def with_gradient(x):
        value, pull = jax.vjp(lambda x: ops.relaxed_topk_value(x, 3, axis=(0, 2)), x)
        return value, pull(jnp.ones_like(value))[0]

    value, gradient = with_gradient(X)
    assert value.shape == (6,)
    rows = np.moveaxis(X, 1, 0).reshape(6, 24)
    masks = masks_by_hand(rows, 3)
    np.testing.assert_allclose(value, np.sum(masks * rows - 0.1 / 2 * masks**2, axis=1), rtol=1e-6)
    np.testing.assert_allclose(gradient, np.moveaxis(masks.reshape(6, 4, 6), 0, 1), atol=1e-6)
    assert jax.eval_shape(lambda x: ops.relaxed_topk_value(x, 3, axis=None), X).shape == ()
    sorted_as_x = np.sort(X, axis=None)[np.argsort(np.argsort(X, axis=None))]
    np.testing.assert_array_equal(ops.lmo(X, X[::-1], axis=None).ravel(), sorted_as_x)
    assert topk_mask(X[:, :0], 0, axis=(0, 1)).shape == (4, 0, 6)


@pytest.mark.parametrize("operator", ALL)
def test_density_is_a_share_of_the_entries(operator):
    x = oracles.samples((3, 70), dtype=np.float32)
    traced = jax.jit(lambda density: operator(x, density=density))
    for density, k in ((0.1, 7), (0.29, 20), (1.0, 70), ([0.1, 0.5, 0.99], [7, 35, 69])):
        expected = operator(x, np.full(3, k, np.float32))
        np.testing.assert_array_equal(operator(x, density=density), expected)
        np.testing.assert_allclose(traced(np.full(3, density, np.float32)), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(operator(x[:2, :35], density=0.1, axis=None), operator(x[:2, :35], 7, axis=None))


def test_a_density_of_many_entries_is_exact():
    for density, n, k in ((0.95, 10**7, 9_500_000), (0.1, 25 * 10**6, 2_500_000), (0.8888889, 10**6, 888_888)):
        for given in (density, np.float32(density), np.float64(density), jnp.float32(density)):
            assert share_of(given, n, np.float32) == k
    traced = jax.jit(lambda density: share_of(density, 10**7, np.float32))
    assert traced(0.95) == 9_500_000
    assert traced(0.0) == 0
