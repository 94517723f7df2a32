"""Axes, batches of any shape, empty arrays, and entries that do not take part."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import hard_topk_mag, hard_topk_mask, topk_mag, topk_mask
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
