"""What the tests of other libraries ask of theirs, asked of ours: on their numbers, against oracles of our own.

Not asked, with the reason:

    jaxopt, optax   projections onto boxes, half-spaces, hyperplanes, affine sets, polyhedra and balls of l2 and linf:
                    nothing is selected. Lower bounds other than 0 in a box section: a shift of the entries and of k.
                    A box section without a solution is an error there if asked for; here everything is taken, or a
                    cap below 0 makes the row NaN. Transport plans in KL are dense, and a softmax and Sinkhorn.
    optax           the simplex over a pytree: `topk_mag_tree` is what there is over pytrees.
    jaxopt          bounds of isotonic regression: `jnp.clip` of the result, as is tested.
    entmax          alpha = 2.25, and what the authors of the paper test at p = 3: above 2 derivatives have
                    no bound, see `test_above_2_slopes_have_no_bound`. Derivatives in alpha: p is static. Gradients
                    of the k largest scores alone: every entry is looked at in as little time.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from ops import (
    isotonic_regression,
    knapsack_mask,
    sparsemax,
    topk_fenchel_young_loss,
    topk_mask,
    topk_plan,
)
from tests.ops import oracles


def simplex(x, scale=1.0):
    """The Euclidean projection onto the simplex of this size."""
    return scale * sparsemax(x, temperature=scale)


def l1_sphere(x, radius):
    return jnp.sign(x) * simplex(jnp.abs(x), radius)


def exactly(x, scale=1.0):
    """The projection by sorting, in NumPy."""
    ordered = np.sort(np.asarray(x, np.float64))[::-1]
    shifts = (np.cumsum(ordered) - scale) / np.arange(1, x.size + 1)
    return np.maximum(x - shifts[np.flatnonzero(ordered > shifts)[-1]], 0)


@pytest.mark.parametrize("size", [1.0, 1e9])
@pytest.mark.parametrize("scale", [1.0, 0.8])
def test_projection_onto_the_simplex(size, scale):
    x = (size * np.random.RandomState(0).randn(10, 50)).astype(np.float32)
    found = np.asarray(simplex(x, np.float32(scale)))
    for row, y in zip(x, found, strict=True):
        np.testing.assert_allclose(y, exactly(row, scale), atol=1e-6)
    np.testing.assert_allclose(jax.vmap(simplex)(x, np.full(10, scale, np.float32)), found, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 0.8])
def test_the_simplex_with_an_absent_entry(scale):
    np.testing.assert_allclose(simplex(np.float32([0, 0, -np.inf]), scale), [scale / 2, scale / 2, 0])


@jax.jit
def jacobians_of_the_simplex(x, v):
    """The value, the Jacobian by rows and by columns, and its products with a vector from either side."""
    y, push = jax.linearize(simplex, x)
    pull = jax.linear_transpose(push, x)
    unit = jnp.eye(x.size)
    return y, jax.vmap(pull)(unit)[0], jax.vmap(push, out_axes=1)(unit), push(v), pull(v)[0]


@pytest.mark.parametrize("size", [1.0, 1e9])
def test_jacobian_of_the_simplex(size):
    rng = np.random.RandomState(0)
    x, v = size * rng.rand(5).astype(np.float32), size * rng.randn(5).astype(np.float32)
    y, by_rows, by_columns, pushed, pulled = jacobians_of_the_simplex(x, v)
    support = (np.asarray(y) > 0).astype(np.float32)
    expected = np.diag(support) - np.outer(support, support) / support.sum()
    np.testing.assert_allclose(by_rows, expected, atol=1e-6)
    np.testing.assert_allclose(by_columns, expected, atol=1e-6)
    np.testing.assert_allclose(pushed, expected @ v, atol=1e-6 * size)
    np.testing.assert_allclose(pulled, v @ expected, atol=1e-6 * size)


@pytest.mark.parametrize("radius", [1.0, 3.21])
@pytest.mark.parametrize("x", [np.random.RandomState(0).randn(50), [0.5, 2.1, -3.5], [0.5, 2.1, -3.5, 1.0, 2.0, 3.0]])
def test_projection_onto_the_l1_sphere(x, radius):
    x = np.float32(x)
    y = np.asarray(l1_sphere(x, radius))
    np.testing.assert_allclose(np.abs(y).sum(), radius, rtol=1e-5)
    np.testing.assert_allclose(y, np.sign(x) * exactly(np.abs(x), radius), atol=1e-5)


def test_box_section():
    x, w = np.float32([1.2, 3.0, 0.7]), np.float32([1, 2, 3])
    found = optimize.minimize(
        lambda z: 0.5 * np.sum((z - x) ** 2),
        np.full(3, 1 / 6),
        bounds=[(0, 0.8)] * 3,
        constraints={"type": "eq", "fun": lambda z: w @ z - 1},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    np.testing.assert_allclose(knapsack_mask(x, 1.0, costs=w, caps=0.8, lam=1.0), found.x, atol=1e-5)
    with pytest.raises(ValueError, match=r"caps .*-0\.5"):
        knapsack_mask(x, 1.0, costs=w, caps=-0.5, lam=1.0)
    assert np.isnan(jax.jit(lambda caps: knapsack_mask(x, 1.0, costs=w, caps=caps, lam=1.0))(-0.5)).all()
    x = np.random.RandomState(0).rand(5).astype(np.float32)
    y, jacobian, *_ = jacobians_of_the_simplex(x, x)
    np.testing.assert_allclose(knapsack_mask(x, 1.0, lam=1.0), y, atol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.jacrev(lambda x: knapsack_mask(x, 1.0, lam=1.0)))(x), jacobian, atol=1e-5)


def test_transport_and_doubly_stochastic_plans():
    rng = np.random.RandomState(0)
    scores, a, b = rng.rand(5, 6), rng.rand(5), rng.rand(6)
    a, b = a / a.sum(), b / b.sum()
    found = topk_plan(scores.astype(np.float32), a.astype(np.float32), b.astype(np.float32), lam=1.0)
    assert found.converged
    np.testing.assert_allclose(found.plan.sum(axis=1), a, atol=1e-5)
    np.testing.assert_allclose(found.plan.sum(axis=0), b, atol=1e-4)

    def doubly_stochastic(scores):  # of square matrices, the rest of one of 5 by 6 being absent: compiled already
        padded = np.full((5, 6), -np.inf, np.float32)
        padded[: len(scores), : len(scores)] = scores
        found = topk_plan(padded, 1, 1, lam=1.0)
        assert found.converged
        return found.plan[: len(scores), : len(scores)]

    scores = np.random.RandomState(0).rand(5, 5)
    np.testing.assert_allclose(doubly_stochastic(0.5 * (scores + scores.T)).sum(axis=0), np.ones(5), atol=1e-4)
    same = np.float32([[0.6, 0.4], [0.4, 0.6]])
    np.testing.assert_allclose(doubly_stochastic(same), same, atol=1e-5)


@pytest.mark.parametrize("increasing", [True, False])
def test_isotonic_regression_with_and_without_bounds(increasing):
    y = jax.random.normal(jax.random.key(0), (10,))
    flip = -1 if increasing else 1
    found = isotonic_regression(y[::flip], 0.0).v[::flip]
    expected = optimize.isotonic_regression(np.asarray(y, np.float64), increasing=increasing).x
    np.testing.assert_allclose(found, expected, atol=1e-6)
    low, high = np.sort(np.asarray(y, np.float64))[[2, 5]]
    # With bounds: the best of all sequences in order and between them, which SciPy's general solver finds as well.
    sign = 1 if increasing else -1
    bounded = optimize.minimize(
        lambda v: np.sum((v - np.asarray(y)) ** 2),
        np.full(10, low),
        bounds=[(low, high)] * 10,
        constraints={"type": "ineq", "fun": lambda v: sign * np.diff(v)},
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(np.clip(found, low, high), bounded.x, atol=1e-5)


def test_sparsemax_losses():
    labels = np.array([1, 0, 2])
    scores = np.float32([[0, 1e5, 0], [1e5, 0, 0], [0, 0, 1e5]])

    def losses(scores, labels=labels):
        return topk_fenchel_young_loss(scores, labels, 1, lam=1.0)

    np.testing.assert_array_equal(losses(scores), [0, 0, 0])
    gradient = jax.jit(jax.grad(lambda x: jnp.mean(losses(x))))(scores)
    masks = np.stack([exactly(row) for row in scores])
    np.testing.assert_allclose(gradient, (masks - np.eye(3)[labels]) / 3, atol=1e-6)
    for s in (-1.5, -1.0, 0.3, 1.0, 2.5):  # of two classes: 0, a parabola, and the score
        wanted = 0.0 if s <= -1 else s if s >= 1 else (s + 1) ** 2 / 4
        np.testing.assert_allclose(losses(np.float32([[0, s]]), np.array([0])), [wanted], atol=1e-6)
        np.testing.assert_allclose(losses(np.float32([[0, -s]]), np.array([1])), [wanted], atol=1e-6)


def entmax(x, alpha, **options):
    """The mapping of Peters, Niculae and Martins (2019): one entry is selected, with p = alpha."""
    return topk_mask(x, 1, p=alpha, lam=1 / (alpha - 1), **options)


def test_entmax_by_its_numbers():
    x = np.float32([-2, 0, 0.5])
    np.testing.assert_allclose(sparsemax(x), [0, 0.25, 0.75], atol=1e-6)
    np.testing.assert_allclose(entmax(x, 1.5), [0, 0.3260, 0.6740], atol=5e-5)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_entmax_of_long_rows(alpha):
    x = 0.5 * np.random.RandomState(0).randn(2, 30_000).astype(np.float32)
    expected = np.stack([oracles.pooled(row, 1, 1 / (alpha - 1), alpha) for row in x])
    assert np.sum((np.asarray(entmax(x, alpha)) - expected) ** 2) < 1e-10


@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.75])
def test_derivatives_of_entmax(alpha, x64):
    x, c = (np.random.RandomState(seed).randn(4, 6) for seed in (0, 1))
    v = np.random.RandomState(2).randn(4, 6)

    value_and_grad = jax.jit(jax.value_and_grad(lambda x: jnp.sum(c * entmax(x, alpha))))
    right, left = (value_and_grad(x + step * v)[0] for step in (1e-6, -1e-6))
    difference = (right - left) / 2e-6
    np.testing.assert_allclose(np.vdot(value_and_grad(x)[1], v), difference, rtol=1e-5, atol=1e-7)
    assert abs(difference) > 1e-3


@pytest.mark.parametrize(("scale", "axis"), [(0.00001, 0), (0.5, 1), (10000.0, 2)])
def test_entmax_of_its_support_alone_is_that_of_all(scale, axis):
    x = scale * np.random.RandomState(0).randn(10, 11, 12).astype(np.float32)
    for alpha in (2.0, 1.5):
        y = -np.sort(-np.asarray(entmax(x, alpha, axis=axis)), axis=axis)
        support = range(int((y > 0).sum(axis=axis).max()))  # of the row that has most
        alone = entmax(-np.sort(-x, axis=axis).take(support, axis=axis), alpha, axis=axis)
        np.testing.assert_allclose(alone, y.take(support, axis=axis), atol=2e-6)


def test_entmax_of_masked_scores():
    x = np.random.RandomState(0).randn(6).astype(np.float32)
    for alpha in (1.2, 1.5, 2.0):
        masked = entmax(np.append(x, [-np.inf, -np.inf]).astype(np.float32), alpha)
        np.testing.assert_allclose(masked[:6], oracles.pooled(x, 1, 1 / (alpha - 1), alpha), atol=1e-6)
        assert (np.asarray(masked)[6:] == 0).all()


def test_above_2_slopes_have_no_bound():
    """Why p is at most 2: two entries that come in together move the faster past each other, the less of them is in."""

    def first(s, h, p):  # of 2 + s and 2 + h; what is left of k goes to a third, which alone would have it all
        return oracles.pooled(np.array([2 + s, 2 + h, 2 + 0.9 ** (p - 1), 0.0]), 0.9, 1.0, p)[0]

    def slope(h, p):
        return (first(h + 1e-9, h, p) - first(h - 1e-9, h, p)) / 2e-9

    assert slope(1e-3, 3.0) > 5 * slope(1e-2, 3.0) > 250
    assert slope(1e-3, 2.0) < 1
    for p in (3.0, 2.25):
        with pytest.raises(ValueError, match=r"^p must be in \(1, 2\], got .*: above 2 derivatives have no bound$"):
            topk_mask(np.float32([1, 2]), 1, p=p)


def test_towards_1_the_mask_is_the_hard_one(x64):
    x = 0.1 * np.random.RandomState(0).permutation(40)
    hard = np.asarray(topk_mask(x, 7, lam=0.0))
    assert np.abs(topk_mask(x, 7, p=1.1, lam=0.5) - hard).max() > 0.01
    assert np.abs(topk_mask(x, 7, p=1.005, lam=0.5) - hard).max() < 1e-9
    with pytest.raises(ValueError, match=r"^p must be in \(1, 2\], got 1.0: .* hard operator, which lam=0 gives$"):
        topk_mask(x, 7, p=1.0)
