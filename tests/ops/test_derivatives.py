"""Derivatives in ``x``, ``lam`` and ``k``, first and second, in both modes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import relaxed_topk_value, straight_through, topk_fenchel_young_loss, topk_mag, topk_mask
from tests.ops import oracles

X = np.round(oracles.samples((3, 12), seed=2), 2) + 0.013  # away from 0 and from ties
K = np.array([2.0, 3.3, 5.0])
LAM = np.array([1.0, 0.7, 2.1])

pytestmark = pytest.mark.usefixtures("x64")


def test_magnitudes_to_second_order():
    p = 4 / 3
    y = oracles.check_derivatives(lambda x, k, lam: topk_mag(x, k, lam=lam, p=p), (X, K, LAM))
    assert np.all(np.count_nonzero(y, axis=-1) > np.ceil(K))  # some in part


def test_no_nan_up_to_second_derivatives():
    # Exact zeros, ties, unselected, partly and fully selected entries.
    x = np.array([0.0, 0.0, 1.0, -1.0, 1.1, 3.0, -0.2, 5.0, 5.0, 0.1, 1e-300, -1e-9])

    def loss(at):
        return jnp.sum(jnp.sin(topk_mag(at[:12], at[12], lam=at[13], p=4 / 3) + 0.1 * jnp.arange(12.0)))

    first, seconds = jax.jit(lambda at, along: jax.jvp(jax.grad(loss), (at,), (along,)))(
        np.r_[x, 3.5, 0.4], oracles.samples(14)
    )
    assert np.isfinite(first).all()
    assert np.isfinite(seconds).all()
    assert np.abs(first[:12]).max() > 1e-3
    assert first[0] == 0  # unselected
    assert np.abs(np.asarray(seconds)[[2, 12, 13]]).min() > 1e-3


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


def along(x, d, **options):
    """The derivative of the oracle along ``d``, from the right."""
    pooled = functools.partial(oracles.pooled, kind="mag", **options)
    return (pooled(x + 1e-7 * d) - pooled(x)) / 1e-7


def test_underflowing_share_keeps_its_slope():
    x = np.float32([2, 1.9, 1.2])  # the last one by 0.29 ** 100
    slope = jax.jit(jax.grad(lambda x: topk_mag(x, 1.5, lam=1.0, p=1.01, debias=True)[2]))(x)
    expected = oracles.differentiated(x[None], 1.5, 1.0, 1.01, "mag", debias=True, cotangent=[[0.0, 0.0, 1.0]])
    np.testing.assert_allclose(slope, expected["x"][0], rtol=1e-3)
    assert slope[2] == 1


def test_single_zero_has_its_derivative():
    """Also where there is room for a part of it."""
    x, k = [3.0, 0.0], 1.3
    options = {"lam": 10.0, "p": 1.5, "debias": True}
    gradient = jax.jit(jax.grad(lambda x: topk_mag(x, k, **options)[-1]))(np.array(x))
    d = np.r_[np.zeros(len(x) - 1), 1.0]
    np.testing.assert_allclose(gradient[-1], along(np.array(x), d, k=k, **options)[-1], atol=1e-3)


def test_slope_at_zero_moves_with_k():
    def slope(k, x):
        return jax.grad(lambda x: topk_mag(x, k, lam=10.0, debias=True)[0])(x)[0]

    at_zero, away = (jax.jit(jax.grad(slope))(0.3, np.array([x])) for x in (0.0, 0.7))
    np.testing.assert_allclose(at_zero, away, rtol=1e-12)
    assert away > 0.1


def test_straight_through_has_relaxed_slopes():
    hard, soft = np.float32([1, 0]), np.float32([0.25, 0.75])
    value, tangent = jax.jvp(straight_through, (hard, soft), (np.float32([7, 7]), np.float32([2, 3])))
    assert (value.tolist(), tangent.tolist()) == ([1, 0], [2, 3])
    # Second ones too: 6 of the cube of what is 1 and moves as `soft` does.
    assert jax.grad(jax.grad(lambda soft: straight_through(1.0, soft) ** 3))(0.25) == 6


def test_second_derivative_in_k_if_nothing_is_partial(x64):
    """Compares with formulas for the entry that a change of k moves: from the left, at k = 0 from the right."""
    x, lam = np.array([-9.0, 3.0, 3.0, 0.5]), 0.5

    def values(k):
        of_value = [relaxed_topk_value(x, k, lam=lam, phi=phi) for phi in ("identity", "half_square")]
        of_mag = [topk_mag(x, k, lam=lam, debias=debias) for debias in (False, True)]
        return of_mag, [*of_value, topk_fenchel_young_loss(x, 0, k, lam=lam)]

    second = jax.jit(jax.jacfwd(jax.jacrev(values)))
    # y = z s / (1 + lam z), debiased (1 + lam) times that; v = s - lam z, or s / (1 + lam z).
    for k, s, z, moved in ((0.0, -9.0, 0, [0]), (1.0, -9.0, 1, [0]), (3.0, 3.0, 1, [1, 2])):
        of_mag, of_value = second(k)
        expected = np.zeros(4)
        expected[moved] = -2 * lam * s / (1 + lam * z) ** 3 / len(moved) ** 2
        for found, times in zip(of_mag, (1, 1 + lam), strict=True):
            np.testing.assert_allclose(found, times * expected, rtol=1e-12)
        square = -lam * s**2 / (1 + lam * z) ** 3 / len(moved)
        # Without magnitudes the entries are 3, 3, 0.5 and -9: two share the first unit of k.
        np.testing.assert_allclose(
            of_value, [-lam / (1 if k == 3 else 2), square, -lam / (1 if k == 3 else 2)], rtol=1e-12
        )


def test_second_derivative_in_k_is_the_left_limit(x64):
    """Takes p below 2, where it has no simple formula."""
    x, options = np.array([-9.0, 3.0, 3.0, 0.5]), {"lam": 0.5, "p": 1.5}

    def values(k):
        of_mag = [topk_mag(x, k, debias=debias, **options) for debias in (False, True)]
        return (
            of_mag,
            relaxed_topk_value(x, k, phi="half_square", **options),
            topk_fenchel_young_loss(x, 0, k, **options),
        )

    second = jax.jit(jax.jacfwd(jax.jacfwd(values)))
    for k in (1.0, 3.0):
        jax.tree.map(lambda at, near: np.testing.assert_allclose(at, near, rtol=1e-4), second(k), second(k - 1e-6))
