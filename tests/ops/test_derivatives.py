"""Derivatives in ``x``, ``lam`` and ``k``, first and second, in both modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from ops import topk_mag, topk_mask
from tests.ops import oracles

X = np.round(oracles.samples((3, 12), seed=2), 2) + 0.013  # away from 0 and from ties
K = np.array([2.0, 3.3, 5.0])
LAM = np.array([1.0, 0.7, 2.1])

pytestmark = pytest.mark.usefixtures("x64")


# Each mode of each order is a compilation of its own: all of them for one p only.
TO_SECOND_ORDER = pytest.mark.parametrize(("p", "modes"), [(4 / 3, ("fwd", "rev")), (2.0, ("rev",))])


@TO_SECOND_ORDER
def test_mask_to_second_order(p, modes):
    mask = np.asarray(topk_mask(X, K, lam=LAM, p=p))
    assert np.all(((mask > 1e-3) & (mask < 1 - 1e-3)).sum(-1) >= 2)
    check_grads(lambda x, k, lam: topk_mask(x, k, lam=lam, p=p), (X, K, LAM), 2, modes, atol=1e-3, rtol=1e-3, eps=1e-5)


@TO_SECOND_ORDER
def test_magnitude_to_second_order(p, modes):
    mag = np.asarray(topk_mag(X, K, lam=LAM, p=p))
    assert np.all((np.abs(mag) > 1e-3).sum(-1) >= 2)
    check_grads(lambda x, k, lam: topk_mag(x, k, lam=lam, p=p), (X, K, LAM), 2, modes, atol=1e-3, rtol=1e-3, eps=1e-5)


@pytest.mark.parametrize(("operator", "p", "debias"), [(topk_mask, 1.5, None), (topk_mag, 2, True)])
def test_first_order_against_differences(operator, p, debias):
    options = {"p": p} | ({} if debias is None else {"debias": debias})
    function = jax.jit(lambda x, k, lam: operator(x, k, lam=lam, **options))
    check_grads(function, (X, K, LAM), 1, modes=["fwd", "rev"], atol=1e-5, rtol=1e-5, eps=1e-5)


def test_jacobian_of_the_mask_at_p_2():
    x, lam = X[0], 0.8
    y, jacobian = topk_mask(x, 3, lam=lam), jax.jacobian(lambda x: topk_mask(x, 3, lam=lam))(x)
    active = ((y > 0) & (y < 1)).astype(float)
    assert active.sum() >= 3
    expected = (np.diag(active) - np.outer(active, active) / active.sum()) / lam
    np.testing.assert_allclose(jacobian, expected, atol=1e-14)


def test_derivatives_of_the_sum():
    # sum(y) = k, whatever x and lam.
    gradients = jax.grad(lambda x, k, lam: topk_mask(x, k, lam=lam, p=1.5).sum(), (0, 1, 2))(X, K, LAM)
    for gradient, expected in zip(gradients, (0, 1, 0), strict=True):
        np.testing.assert_allclose(gradient, np.full(np.shape(gradient), expected), atol=1e-12)


@pytest.mark.parametrize(("operator", "p"), [(topk_mask, 1.7), (topk_mag, 4 / 3), (topk_mag, 1.7), (topk_mag, 2.0)])
def test_no_nan_in_first_and_second_derivatives(operator, p):
    # Exact zeros, ties, unselected, partly and fully selected entries.
    x = np.array([0.0, 0.0, 1.0, -1.0, 1.1, 3.0, -0.2, 5.0, 5.0, 0.1, 1e-300, -1e-9])

    def loss(x, k, lam):
        return jnp.sum(jnp.sin(operator(x, k, lam=lam, p=p) + 0.1 * jnp.arange(12.0)))

    derivatives = jax.jit(lambda *a: (jax.grad(loss, (0, 1, 2))(*a), jax.hessian(loss, (0, 1, 2))(*a)))(x, 3.5, 0.4)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(derivatives))
    first = derivatives[0][0]
    assert np.abs(first).max() > 1e-3
    assert first[0] == 0  # unselected


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_hard_regime_has_no_derivative(p):
    x = np.arange(12.0)
    gradients = jax.grad(lambda x, k, lam: (topk_mask(x, k, lam=lam, p=p) ** 2).sum(), (0, 2))(x, 4, 0.1)
    np.testing.assert_array_equal(gradients[0], np.zeros(12))
    assert gradients[1] == 0


def test_magnitude_in_the_hard_regime_is_the_shrinkage():
    x = np.r_[10.0, -9.0, 8.0, np.full(9, 0.1)]
    jacobian = jax.jacobian(lambda x: topk_mag(x, 3, lam=0.25))(x)
    np.testing.assert_allclose(jacobian, np.diag(np.r_[np.full(3, 0.8), np.zeros(9)]), rtol=1e-12)


@pytest.mark.parametrize("k", [0, 12])
@pytest.mark.parametrize("operator", [topk_mask, topk_mag])
def test_all_or_nothing_is_finite(operator, k):
    gradients = jax.grad(lambda x, lam: (operator(x, k, lam=lam, p=4 / 3) ** 2).sum(), (0, 1))(X[0], 0.5)
    assert all(jnp.isfinite(leaf).all() for leaf in gradients)
    if k == 0 or operator is topk_mask:
        np.testing.assert_allclose(gradients[0], np.zeros(12), atol=1e-12)


@pytest.mark.parametrize("operator", [topk_mask, topk_mag])
def test_lam_0_is_finite(operator):
    def loss(x, lam):
        return (operator(x, 3, lam=lam) ** 2).sum()

    x_bar, lam_bar = jax.jit(jax.grad(loss, (0, 1)))(X, np.array([0.0, 0.5, 0.0]))
    assert jnp.isfinite(x_bar).all()
    assert jnp.isfinite(lam_bar).all()
    expected = np.zeros(12) if operator is topk_mask else 2 * np.asarray(operator(X[0], 3, lam=0.0))
    np.testing.assert_allclose(x_bar[0], expected, atol=1e-14)
    assert np.abs(x_bar[1]).max() > 0


def test_infinite_entries_do_not_spoil_gradients():
    x = np.r_[-np.inf, np.inf, X[0, 2:]]
    gradient = jax.grad(lambda x: (topk_mask(x, 3, lam=1.0, p=4 / 3) ** 2).sum())(x)
    assert jnp.isfinite(gradient).all()
    assert gradient[:2].tolist() == [0, 0]
    assert np.abs(gradient).max() > 0


def test_float32_at_small_lam_and_large_offset():
    # The threshold does not fit a float32 here; its derivative must not notice.
    ties = np.float32(1000.0) + np.repeat(np.float32([0, 0, 1, -1]), 3)
    jacobian = jax.jacobian(lambda x: topk_mask(x, 5.0, lam=np.float32(1e-4)))(ties)
    active = (np.arange(12) < 6).astype(np.float32)
    expected = (np.diag(active) - np.outer(active, active) / 6) / 1e-4
    np.testing.assert_allclose(jacobian, expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(("p", "at_0", "at_1"), [(2.0, 2 / 3, 2 / 3), (4 / 3, 0.0, 1.6725)])
def test_where_the_mask_has_kinks(p, at_0, at_1):
    """The paper calls p < 2 differentiable everywhere: it is where an entry becomes 0, not where one becomes 1."""
    slope = jax.jit(jax.vmap(jax.jacfwd(lambda s, rest, k: topk_mask(jnp.stack([s, rest, rest]), k, p=p, lam=1.0)[0])))
    half = 0.5 ** (p - 1)  # the gap of an entry selected by half, as the other two are
    leaves_0, reaches_1 = 1 - half, 1 - half
    s = np.r_[leaves_0 + np.array([-1e-9, 1e-9]), reaches_1 + np.array([-1e-9, 1e-9])]
    found = slope(s, np.r_[1.0, 1.0, 0.0, 0.0], np.r_[1.0, 1.0, 2.0, 2.0])
    np.testing.assert_allclose(found, [0, at_0, at_1, 0], atol=1e-4)
