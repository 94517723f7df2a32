"""Derivatives in ``x``, ``lam`` and ``k``, first and second, in both modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import topk_mag, topk_mask
from tests.ops import oracles

X = np.round(oracles.samples((3, 12), seed=2), 2) + 0.013  # away from 0 and from ties
K = np.array([2.0, 3.3, 5.0])
LAM = np.array([1.0, 0.7, 2.1])

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_mask_to_second_order(p):
    mask = oracles.check_derivatives(lambda x, k, lam: topk_mask(x, k, lam=lam, p=p), (X, K, LAM))
    assert np.all(((mask > 1e-3) & (mask < 1 - 1e-3)).sum(-1) >= 2)


@pytest.mark.parametrize(("p", "debias"), [(4 / 3, False), (2.0, True)])
def test_magnitude_to_second_order(p, debias):
    mag = oracles.check_derivatives(lambda x, k, lam: topk_mag(x, k, lam=lam, p=p, debias=debias), (X, K, LAM))
    assert np.all((np.abs(mag) > 1e-3).sum(-1) >= 2)


@pytest.mark.parametrize("operator", [topk_mask, topk_mag])
def test_second_derivatives_agree_in_all_modes(operator):
    x, k, lam = X[0, :4], 1.7, 1.1
    direction = (np.array([0.3, -1.0, 0.6, 0.2]), 0.5, -0.4)

    def loss(x, k, lam):
        return jnp.sum(jnp.sin(operator(x, k, lam=lam, p=4 / 3)))

    def slope(*at):
        return jax.jvp(loss, at, direction)[1]

    def gradient_along(*at):
        return sum(jnp.vdot(g, d) for g, d in zip(jax.grad(loss, (0, 1, 2))(*at), direction, strict=True))

    @jax.jit
    def products(*at):
        forward_over_reverse = jax.jvp(jax.grad(loss, (0, 1, 2)), at, direction)[1]
        return forward_over_reverse, jax.grad(gradient_along, (0, 1, 2))(*at), jax.jvp(slope, at, direction)[1]

    expected, twice_reverse, twice_forward = products(x, k, lam)
    for wanted, found in zip(expected, twice_reverse, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
    wanted = sum(np.vdot(g, d) for g, d in zip(expected, direction, strict=True))
    assert abs(wanted) > 1e-2
    np.testing.assert_allclose(twice_forward, wanted, rtol=1e-9)


def of_rows(operator, p, x, k, lam, cotangent):
    """``oracles.with_gradients`` of up to twelve rows: all tests share one program for each operator and p."""
    arguments = x, np.broadcast_to(k, len(x)), lam, cotangent
    arguments = [np.resize(np.asarray(a, float), (12, *np.shape(a)[1:])) for a in arguments]
    found = jax.device_get(oracles.with_gradients(operator, p=p)(*arguments))
    return [leaf[: len(x)] for leaf in found]


def jacobian_of(operator, p, x, k, lam):
    """The value of one row, and its Jacobian by reverse mode."""
    y, jacobian, *_ = of_rows(operator, p, np.tile(x, (12, 1)), k, np.full(12, lam), np.eye(12))
    return y[0], jacobian


def test_jacobian_of_the_mask_at_p_2():
    lam = 0.8
    y, jacobian = jacobian_of(topk_mask, 2.0, X[0], 3, lam)
    active = ((y > 0) & (y < 1)).astype(float)
    assert active.sum() >= 3
    expected = (np.diag(active) - np.outer(active, active) / active.sum()) / lam
    np.testing.assert_allclose(jacobian, expected, atol=1e-14)


def test_derivatives_of_the_sum():
    # sum(y) = k, whatever x and lam.
    gradients = of_rows(topk_mask, 4 / 3, X, K, LAM, np.ones(X.shape))[1:]
    for gradient, expected in zip(gradients, (0, 1, 0), strict=True):
        np.testing.assert_allclose(gradient, np.full(np.shape(gradient), expected), atol=1e-12)


@pytest.mark.parametrize(("operator", "p"), [(topk_mask, 1.7), (topk_mag, 4 / 3), (topk_mag, 2.0)])
def test_no_nan_in_first_and_second_derivatives(operator, p):
    # Exact zeros, ties, unselected, partly and fully selected entries.
    x = np.array([0.0, 0.0, 1.0, -1.0, 1.1, 3.0, -0.2, 5.0, 5.0, 0.1, 1e-300, -1e-9])

    def loss(x, k, lam):
        return jnp.sum(jnp.sin(operator(x, k, lam=lam, p=p) + 0.1 * jnp.arange(12.0)))

    def both(*arguments):
        gradients = jax.grad(loss, (0, 1, 2))(*arguments)
        return gradients, gradients

    seconds, firsts = jax.jit(jax.jacfwd(both, (0, 1, 2), has_aux=True))(x, 3.5, 0.4)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((firsts, seconds)))
    first = np.asarray(firsts[0])
    assert np.abs(first).max() > 1e-3
    assert first[0] == 0  # unselected


@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_limits_of_k_and_lam(p):
    """Nothing or all selected, a regime that is hard, and lam = 0: no derivative of the mask, and none that is NaN."""
    x = np.stack([X[0], X[0], np.arange(12.0), X[0], X[0]])
    k, lam = np.array([0.0, 12, 4, 3, 3]), np.array([0.5, 0.5, 0.1, 0.0, 0.5])
    cotangent = 2 * oracles.samples(x.shape, 4)
    _, *gradients = of_rows(topk_mask, p, x, k, lam, cotangent)
    assert all(np.isfinite(leaf).all() for leaf in gradients)
    np.testing.assert_allclose(gradients[0][:4], np.zeros((4, 12)), atol=1e-12)
    np.testing.assert_allclose(gradients[2][:3], np.zeros(3), atol=1e-12)
    assert np.abs(gradients[0][4]).max() > 0
    y, *gradients = of_rows(topk_mag, p, x, k, lam, cotangent)
    assert all(np.isfinite(leaf).all() for leaf in gradients)
    np.testing.assert_allclose(gradients[0][0], np.zeros(12), atol=1e-12)
    np.testing.assert_allclose(gradients[0][3], np.where(y[3] != 0, cotangent[3], 0), atol=1e-14)
    assert np.abs(gradients[0][4]).max() > 0


def test_magnitude_in_the_hard_regime_is_the_shrinkage():
    x = np.r_[10.0, -9.0, 8.0, np.full(9, 0.1)]
    _, jacobian = jacobian_of(topk_mag, 2.0, x, 3, 0.25)
    np.testing.assert_allclose(jacobian, np.diag(np.r_[np.full(3, 0.8), np.zeros(9)]), rtol=1e-12)


def test_infinite_entries_do_not_spoil_gradients():
    x = np.r_[-np.inf, np.inf, X[0, 2:]]
    _, gradient, *_ = of_rows(topk_mask, 4 / 3, x[None], 3, [1.0], oracles.samples((1, 12), 4))
    assert np.isfinite(gradient).all()
    assert gradient[0, :2].tolist() == [0, 0]
    assert np.abs(gradient).max() > 0


def test_float32_at_small_lam_and_large_offset():
    # The threshold does not fit a float32 here; its derivative must not notice.
    ties = np.float32(1000.0) + np.repeat(np.float32([0, 0, 1, -1]), 3)
    jacobian = jax.jit(jax.jacobian(lambda x: topk_mask(x, 5.0, lam=np.float32(1e-4))))(ties)
    active = (np.arange(12) < 6).astype(np.float32)
    expected = (np.diag(active) - np.outer(active, active) / 6) / 1e-4
    np.testing.assert_allclose(jacobian, expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(("p", "at_0", "at_1"), [(2.0, 2 / 3, 2 / 3), (4 / 3, 0.0, 1.6725)])
def test_where_the_mask_has_kinks(p, at_0, at_1):
    """The paper calls p < 2 differentiable everywhere: it is where an entry becomes 0, not where one becomes 1."""
    half = 0.5 ** (p - 1)  # the gap of an entry selected by half, as the other two are
    leaves_0, reaches_1 = 1 - half, 1 - half
    s = np.r_[leaves_0 + np.array([-1e-9, 1e-9]), reaches_1 + np.array([-1e-9, 1e-9])]
    rest, absent = np.r_[1.0, 1.0, 0.0, 0.0], np.full((4, 9), -np.inf)
    x = np.concatenate([np.stack([s, rest, rest], axis=1), absent], axis=1)
    _, slope, *_ = of_rows(topk_mask, p, x, [1, 1, 2, 2], np.ones(4), np.eye(12)[[0, 0, 0, 0]])
    np.testing.assert_allclose(slope[:, 0], [0, at_0, at_1, 0], atol=1e-4)
