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


def test_mask_to_second_order():
    p = 4 / 3
    mask = oracles.check_derivatives(lambda x, k, lam: topk_mask(x, k, lam=lam, p=p), (X, K, LAM))
    assert np.all(((mask > 1e-3) & (mask < 1 - 1e-3)).sum(-1) >= 2)


def test_second_derivatives_agree_in_both_modes():
    operator = topk_mag
    x, k, lam = X[0, :4], 1.7, 1.1
    direction = (np.array([0.3, -1.0, 0.6, 0.2]), 0.5, -0.4)

    def loss(x, k, lam):
        return jnp.sum(jnp.sin(operator(x, k, lam=lam, p=4 / 3)))

    def gradient_along(*at):
        return sum(jnp.vdot(g, d) for g, d in zip(jax.grad(loss, (0, 1, 2))(*at), direction, strict=True))

    @jax.jit
    def products(*at):
        forward_over_reverse = jax.jvp(jax.grad(loss, (0, 1, 2)), at, direction)[1]
        return forward_over_reverse, jax.grad(gradient_along, (0, 1, 2))(*at)

    expected, twice_reverse = products(x, k, lam)
    for wanted, found in zip(expected, twice_reverse, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
    assert min(np.abs(leaf).max() for leaf in expected) > 1e-2


def test_no_nan_in_first_and_second_derivatives():
    # Exact zeros, ties, unselected, partly and fully selected entries.
    operator, p = topk_mag, 4 / 3
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


def slopes_of(p):
    """A compiled function of four rows, ``k`` and ``lam``: the mask, and the Jacobian of each row."""
    return jax.jit(
        jax.vmap(lambda x, k, lam: (topk_mask(x, k, lam=lam, p=p), jax.jacrev(topk_mask)(x, k, lam=lam, p=p)))
    )


def test_jacobian_of_the_mask_at_p_2():
    lam = 0.8
    y, jacobian = (leaf[0] for leaf in slopes_of(2.0)(np.tile(X[0], (4, 1)), np.full(4, 3.0), np.full(4, lam)))
    active = ((y > 0) & (y < 1)).astype(float)
    assert active.sum() >= 3
    expected = (np.diag(active) - np.outer(active, active) / active.sum()) / lam
    np.testing.assert_allclose(jacobian, expected, atol=1e-14)


def test_where_the_mask_has_kinks():
    """The paper calls p < 2 differentiable everywhere: it is where an entry becomes 0, not where one becomes 1."""
    p, at_1 = 4 / 3, 1.6725
    kink = 1 - 0.5 ** (p - 1)  # 1 less the gap of an entry selected by half, as the other two are
    s = kink + np.array([-1e-9, 1e-9, -1e-9, 1e-9])
    rest, absent = np.r_[1.0, 1.0, 0.0, 0.0], np.full((4, 9), -np.inf)
    x = np.concatenate([np.stack([s, rest, rest], axis=1), absent], axis=1)
    _, jacobians = slopes_of(p)(x, np.array([1.0, 1, 2, 2]), np.ones(4))
    np.testing.assert_allclose(jacobians[:, 0, 0], [0, 0, at_1, 0], atol=1e-4)
