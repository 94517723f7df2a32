import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization

import ops
from tests.ops import oracles

X = oracles.samples((5, 4, 12), 4)


def test_threshold_gives_the_exact_mask():
    narrow = jnp.asarray(np.round(X, 1), jnp.bfloat16)  # with ties
    fit = jax.jit(functools.partial(ops.topk_threshold, p=4 / 3, axis=(0, 2)))
    mask = jax.jit(functools.partial(ops.topk_mask, p=4 / 3, axis=(0, 2)))
    for k in (2, 3.5):
        found = fit(narrow, k, lam=0.01)(narrow)
        assert found.dtype == jnp.bfloat16
        np.testing.assert_array_equal(found, mask(narrow, k, lam=0.01))


def test_derivatives_of_mask_and_of_tau(x64):
    p, x, direction = 4 / 3, X[:, 0], oracles.samples((5, 12), 5)
    arguments, moved = (x, np.full(5, 3.5), np.linspace(0.2, 1, 5)), (direction, np.ones(5), np.ones(5))

    def tau_and_share(x, k, lam):
        found = ops.topk_threshold(x, k, lam=lam, p=p)
        return found.tau, jnp.vdot(direction, found(x))

    @jax.jit
    def everything(arguments):
        gradients = jax.grad(lambda *at: tau_and_share(*at)[1], (0, 1, 2))(*arguments)
        return gradients, jax.jvp(lambda *at: tau_and_share(*at)[0], arguments, moved)

    gradients, (_, slope) = everything(arguments)
    wanted = oracles.differentiated(*arguments, p, cotangent=direction)
    for name, found in zip(("x", "k", "lam"), gradients, strict=True):
        np.testing.assert_allclose(found.reshape(wanted[name].shape), wanted[name], rtol=1e-9, atol=1e-12)
    ends = [
        everything(tuple(a + step * d for a, d in zip(arguments, moved, strict=True)))[1][0] for step in (1e-6, -1e-6)
    ]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize("lam", [0.05, 0.7, 5.0])
def test_new_entries_are_judged_alone(lam):
    p, x, new = 4 / 3, np.float32(X[:3, 0]), np.float32(2 * oracles.samples((2, 3, 7), 3))
    fit = ops.topk_threshold(x, 4, lam=lam, p=p)
    share = np.clip((np.float64(new) - np.float64(fit.tau)[:, None]) / lam, 0, 1) ** (1 / (p - 1))
    found = fit(new)
    np.testing.assert_allclose(found, share, rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(found, jnp.stack([fit.entry(one) for one in jnp.moveaxis(new, -1, 0)], axis=-1))


@pytest.mark.parametrize("axis", [0, (1, 0), None])
def test_its_axis_stays_behind_others(axis):
    x = np.float32(X)

    def fit(x):
        return ops.topk_threshold(x, 3, lam=0.5, axis=axis)

    masks, found = np.stack([fit(row)(row) for row in x]), jax.vmap(fit)(x)
    np.testing.assert_array_equal(found(x), masks)
    np.testing.assert_array_equal(jax.vmap(lambda found, x: found(x))(found, x), masks)
    np.testing.assert_array_equal(fit(x[0])(x)[0], masks[0])


def test_nan_and_infinity_affect_no_other():
    x, where = np.float32(X[:, 0]), oracles.samples((5, 12), 6) > -0.5
    fit = ops.topk_threshold(x, 3, lam=0.5, where=where)
    np.testing.assert_array_equal(fit(x, where=where), ops.topk_mask(x, 3, lam=0.5, where=where))
    odd = x.copy()
    odd[:, :3] = -np.inf, np.inf, np.nan
    np.testing.assert_array_equal(fit(odd)[:, :3], np.float32([[0, 1, np.nan]] * 5))
    np.testing.assert_array_equal(fit(odd)[:, 3:], fit(x)[:, 3:])


def test_hard_threshold_limits_the_ties():
    """Selects what is above, and of the ties as many as were selected where it was found."""
    fit = ops.topk_threshold([3.0, 1.0, 2.0, 2.0], 2, lam=0.0)
    np.testing.assert_array_equal(fit([2.5, 1.9, 2.0, 2.0, 2.0]), [1, 0, 1, 0, 0])
    assert fit.entry(2.0) == 1


def test_running_mean_averages_over_groups():
    batches = np.float32(oracles.samples((6, 3, 2, 12), 7))

    def fit(x):
        return ops.topk_threshold(x, 3, lam=0.5)

    def step(average, x):
        return average.ema(fit(x), 0.8), None

    first = fit(batches[0, 0])
    average, _ = jax.jit(lambda: jax.lax.scan(step, first, jnp.asarray(batches)))()
    wanted = np.float64(first.tau)
    for x in batches:
        wanted = 0.8 * wanted + 0.2 * np.float64(fit(x).tau).mean(axis=0)
    np.testing.assert_allclose(average.tau, wanted, rtol=1e-6)
    assert jax.tree.structure(average) == jax.tree.structure(first)
    assert average(batches).shape == batches.shape
    np.testing.assert_array_equal(jax.grad(lambda x: average.ema(fit(x), 0.5).tau.sum())(batches[0, 0]), 0)


def test_running_mean_with_scheduled_lam():
    x = jnp.asarray(X[0, 0], jnp.float32)

    def step(average, lam):
        return average.ema(ops.topk_threshold(x, 3, lam=lam), 0.5), None

    average, _ = jax.jit(lambda lams: jax.lax.scan(step, ops.topk_threshold(x, 3, lam=0.0), lams))(jnp.array([1.0, 2]))
    assert average.lam == 1.25
    np.testing.assert_allclose(average(x), jnp.clip((x - average.tau) / 1.25, 0, 1), rtol=1e-6)


def test_flax_stores_it():
    fit, other = (ops.topk_threshold(np.float32(X[0]) + moved, 3, lam=0.5, axis=(1, 0)) for moved in (0, 1))
    restored = serialization.from_bytes(other, serialization.to_bytes(fit))
    jax.tree.map(np.testing.assert_array_equal, restored, fit)


def test_it_shows_what_it_is():
    fit = ops.topk_threshold([1.0, 3.0, 2.5, 2.0], 2, lam=1.0)
    for shown in ("tau=1.75", "lam=1.0", "k=2.0", "p=2.0"):
        assert shown in repr(fit)
    assert "tau=" in repr(jax.eval_shape(lambda: fit))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda fit, of: fit.ema(of(axis=1), 0.5), r"^new .*axis=-1, got p=2.0 and axis=-2\b"),
        (lambda fit, of: fit.ema(of(p=1.5), 0.5), r"^new .*p=2.0 .*, got p=1.5 and"),
        (lambda fit, of: fit(np.zeros((3, 7))), r"k must .* \(3,\), got shape \(5, 4\)"),
        (lambda fit, of: fit.ema(fit, 1.5), r"decay must be in \[0, 1\], got 1.5"),
    ],
)
def test_what_is_wrong_is_said(wrong, message):
    of = functools.partial(ops.topk_threshold, np.float32(X), 3, lam=0.5)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda: wrong(of(), of))


LENGTH = 37
SEQUENCES = np.float32(np.round(oracles.samples((2, LENGTH), 8), 1))  # with ties


def of_prefixes(x, k, lam):
    """The thresholds of all prefixes, each of a row of its own: an array of n^2 entries."""
    prefix = np.tril(np.ones((LENGTH, LENGTH), bool))
    k = jnp.broadcast_to(jnp.asarray(k, x.dtype), x.shape)
    k = jnp.minimum(k, jnp.arange(1, LENGTH + 1, dtype=k.dtype)[None])
    return ops.topk_threshold(jnp.broadcast_to(x[:, None], (2, LENGTH, LENGTH)), k, lam=lam, where=prefix)


def test_prefixes_are_like_separate_rows(x64):
    ties, weights = np.float64(SEQUENCES), oracles.samples((2, LENGTH), 10)
    x, counts = ties + 1e-3 * oracles.samples((2, LENGTH), 9), np.arange(float(LENGTH))

    def total(thresholds, x, k, lam):
        mask = thresholds(x, k, lam).entry(x)
        return jnp.vdot(weights, mask), mask

    def prefixes(x, k, lam):
        return ops.prefix_topk_threshold(x, k, lam=lam)

    both = [jax.jit(jax.grad(functools.partial(total, f), (0, 1, 2), has_aux=True)) for f in (prefixes, of_prefixes)]
    whole, real = np.minimum(3, counts + 1), 4.5 + 0 * counts
    for k, lam in ((whole, 0.5), (0 * counts, 1.0), (0.3 * counts, 0.25), (real, 1e-6)):
        (_, mask), (_, expected) = (function(ties, k, np.float64(lam)) for function in both)
        np.testing.assert_allclose(mask, expected, atol=1e-6)
    (slopes, _), (wanted, _) = (function(x, 2 + 0.1 * counts, np.float64(0.7)) for function in both)
    for one, other in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)


def test_prefixes_ignore_later_entries():
    @jax.jit
    def of_the_first(x, length):
        """The masks, and the gradient of a sum over the first of them."""

        def total(x):
            mask = ops.prefix_topk_threshold(x, 3, lam=0.5).entry(x)
            return jnp.where(jnp.arange(LENGTH) < length, jnp.sin(1 + jnp.arange(LENGTH)) * mask, 0.0).sum(), mask

        return jax.grad(total, has_aux=True)(x)

    random = np.random.default_rng(0)
    for length in (1, 2, 3, 5, 17, LENGTH - 1):
        x = np.float32(random.normal(size=LENGTH))
        later = np.float32(random.choice([1e30, -np.inf, np.nan, 0.3], LENGTH - length))
        (gradient, mask), (its_gradient, other) = (
            of_the_first(np.r_[x[:length], end], length) for end in (x[length:], later)
        )
        np.testing.assert_array_equal(mask[:length], other[:length])
        np.testing.assert_array_equal(gradient[:length], its_gradient[:length])
        assert not np.any(gradient[length:])


def test_absent_entries_count_for_no_prefix():
    x = jnp.array([-jnp.inf, 2.0, 1.0, jnp.nan, 5.0])
    np.testing.assert_array_equal(ops.prefix_topk_threshold(x, 1, lam=1.0).entry(x), [0, 1, 0, np.nan, np.nan])
    there = jnp.array([True, False, True])
    found = ops.prefix_topk_threshold([1.0, 9.0, 0.5], 1, lam=1.0, where=there)
    for absent in (9.0, np.nan, np.inf):
        np.testing.assert_allclose(found.entry(jnp.array([1.0, absent, 0.5])), [1, 0, 0.25])


def test_later_nan_leaves_gradients_alone():
    @jax.jit
    def slopes(x):
        return jax.grad(lambda k, lam: ops.prefix_topk_threshold(x, k, lam=lam).entry(x)[2], (0, 1))(1.0, 0.7)

    x = np.float32([1.0, 0.8, 0.9, 0.3])
    for last in (np.nan, np.inf):
        np.testing.assert_array_equal(slopes(np.float32([*x[:3], last])), slopes(x))


ENDS = np.float32([[4.0, 1.0, 2.5, -1000.0], [4.0, 1.0, 2.5, 0.9]])  # 1.5 between the second and the third


def test_threshold_if_nothing_is_partial():
    """The least entry selected minus lam, whatever lies below; if none is selected, the largest entry."""
    x, k = np.concatenate([*4 * [ENDS], np.full((1, 4), -np.inf, np.float32)]), np.float32([0, 0, 1, 1, 2, 2, 4, 4, 1])
    level, fit = np.float32([4, 4, 4, 4, 2.5, 2.5, -1000, 0.9, 0]), jax.jit(ops.topk_threshold)
    selected = [*oracles.by_rows(lambda row, k, _: oracles.hard(row, k), x[:-1], k[:-1], 0), np.zeros(4)]
    for lam in (0.0, 0.25):
        known = ops.topk_threshold(x, k, lam=lam)
        np.testing.assert_allclose(known.tau, level - lam * (k > 0) * (x.max(axis=1) > 0), rtol=1e-6)
        np.testing.assert_array_equal(known.tau, fit(x, k, lam=np.float32(lam)).tau)
        np.testing.assert_array_equal(known(x), selected)
    prefixes = ops.prefix_topk_threshold(x, k[:, None], lam=0.25).tau
    np.testing.assert_array_equal(prefixes[:, -1], known.tau)
    np.testing.assert_allclose(prefixes[4], [3.75, 0.75, 2.25, 2.25], rtol=1e-6)


@pytest.mark.parametrize("find", [ops.topk_threshold, ops.prefix_topk_threshold])
def test_derivatives_if_nothing_is_partial(find):
    x = jnp.asarray(ENDS[0])
    of_x, of_lam = jax.jacobian(lambda x, lam: find(x, 2, lam=lam).tau, (0, 1))(x, jnp.float32(0.25))
    np.testing.assert_allclose(of_x.reshape(-1, 4)[-1], [0, 0, 1, 0])
    np.testing.assert_allclose(of_lam.reshape(-1)[-1], -1, rtol=1e-6)
