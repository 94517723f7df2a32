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
    fit = jax.jit(functools.partial(ops.topk_threshold, axis=(0, 2)))
    mask = jax.jit(functools.partial(ops.topk_mask, axis=(0, 2)))
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

    found = jax.vmap(fit)(x)
    masks = np.asarray(found(x))
    rows = [row for one in x for row in one.T] if axis == 0 else x.reshape(5, 48)
    expected = oracles.by_rows(oracles.pooled, rows, 3, 0.5)
    expected = expected.reshape(5, 12, 4).swapaxes(1, 2) if axis == 0 else expected.reshape(x.shape)
    np.testing.assert_allclose(masks, expected, atol=2e-6)
    np.testing.assert_array_equal(jax.vmap(lambda found, x: found(x))(found, x), masks)
    if axis == (1, 0):
        np.testing.assert_array_equal(fit(x[0])(x)[0], masks[0])


def test_nan_and_infinity_affect_no_other():
    x, where = np.float32(X[:, 0]), oracles.samples((5, 12), 6) > -0.5
    fit = ops.topk_threshold(x, 3, lam=0.5, where=where)
    np.testing.assert_array_equal(fit(x, where=where), ops.topk_mask(x, 3, lam=0.5, where=where))
    odd = x.copy()
    odd[:, :3] = -np.inf, np.inf, np.nan
    np.testing.assert_array_equal(fit(odd)[:, :3], np.float32([[0, 1, np.nan]] * 5))
    np.testing.assert_array_equal(fit(odd)[:, 3:], fit(x)[:, 3:])


def test_running_mean_averages_over_groups():
    batches = np.float32(oracles.samples((6, 3, 2, 12), 7))

    def fit(x):
        return ops.topk_threshold(x, 3, lam=0.5)

    def step(average, x):
        new = fit(x)
        return average.ema(new, 0.8), new.tau

    first = fit(batches[0, 0])
    average, found = jax.jit(lambda: jax.lax.scan(step, first, jnp.asarray(batches)))()
    wanted = np.float64(first.tau)
    for tau in np.float64(found):
        wanted = 0.8 * wanted + 0.2 * tau.mean(axis=0)
    np.testing.assert_allclose(average.tau, wanted, rtol=1e-6)
    assert jax.tree.structure(average) == jax.tree.structure(first)
    np.testing.assert_allclose(average(batches), np.clip((batches - wanted[:, None]) / 0.5, 0, 1), atol=2e-6)
    slopes = jax.jit(jax.grad(lambda x: average.ema(fit(x), 0.5).tau.sum()))(batches[0, 0])
    np.testing.assert_array_equal(slopes, 0)


def test_running_mean_with_scheduled_lam():
    x = jnp.asarray(X[0, 0], jnp.float32)

    def step(average, lam):
        return average.ema(ops.topk_threshold(x, 3, lam=lam), 0.5), None

    average, _ = jax.jit(lambda lams: jax.lax.scan(step, ops.topk_threshold(x, 3, lam=0.0), lams))(jnp.array([1.0, 2]))
    assert average.lam == 1.25
    np.testing.assert_allclose(average(x), jnp.clip((x - average.tau) / 1.25, 0, 1), rtol=1e-6)


def test_running_mean_forgets_all_or_nothing():
    """Also averages thresholds that are infinite, or far larger."""
    large, small = (ops.topk_threshold(np.float32(x), 1, lam=1.0) for x in ([1e8, 2e8], [3.0, 1.0]))
    assert (large.ema(small, 0.0).tau, large.ema(small, 1.0).tau) == (small.tau, large.tau)
    x = np.float32([1, 3, 2])
    prefixes = ops.prefix_topk_threshold(x, 1, lam=1.0, where=np.array([True, False, True]))
    jax.tree.map(np.testing.assert_array_equal, prefixes.ema(prefixes, 0.9), prefixes)
    others = ops.prefix_topk_threshold(x, 1, lam=1.0)
    assert (prefixes.ema(others, 0.5).tau[1], others.ema(prefixes, 0.5).tau[1]) == (np.inf, np.inf)


def test_row_of_nothing_keeps_lam():
    nothing = ops.topk_threshold(np.zeros((2, 0), np.float32), 0, lam=[1.0, 2.0])
    np.testing.assert_array_equal(nothing(np.full((2, 1), 0.5, np.float32)), [[0.5], [0.25]])


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
        (lambda fit, of: fit.ema(ops.topk_threshold(np.zeros((3, 7)), 3), 0.5), r"^new must .*\(5, 4\), got .*\(3,\)"),
    ],
)
def test_what_is_wrong_is_said(wrong, message):
    of = functools.partial(ops.topk_threshold, np.float32(X), 3, lam=0.5)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda: wrong(of(), of))


LENGTH = 37
SEQUENCES = np.float32(np.round(oracles.samples((2, LENGTH), 8), 1))  # with ties


def of_prefixes(x, k, lam, weights):
    """The masks of the last entries of all prefixes, and the slopes of their weighted sum, by the oracle."""
    rows = np.where(np.tri(LENGTH, dtype=bool), x[:, None], -np.inf).reshape(-1, LENGTH)
    last, lengths, k = np.tile(np.eye(LENGTH), (2, 1)), np.tile(1 + np.arange(LENGTH), 2), np.tile(k, 2)
    found = oracles.differentiated(rows, np.minimum(k, lengths), lam, cotangent=weights.reshape(-1, 1) * last)
    in_x = np.where(rows > -np.inf, found["x"], 0).reshape(2, LENGTH, LENGTH).sum(axis=1)
    in_k = np.where(k < lengths, found["k"][:, 0], 0).reshape(2, LENGTH).sum(axis=0)
    return (in_x, in_k, found["lam"].sum()), found["value"][last > 0].reshape(2, LENGTH)


def test_prefixes_are_like_separate_rows(x64):
    ties, weights = np.float64(SEQUENCES), oracles.samples((2, LENGTH), 10)
    x, counts = ties + 1e-3 * oracles.samples((2, LENGTH), 9), np.arange(float(LENGTH))

    @jax.jit
    def prefixes(x, k, lam):
        def total(x, k, lam):
            mask = ops.prefix_topk_threshold(x, k, lam=lam).entry(x)
            return jnp.vdot(weights, mask), mask

        return jax.grad(total, (0, 1, 2), has_aux=True)(x, k, lam)

    whole, real = np.minimum(3, counts + 1), 4.5 + 0 * counts
    for k, lam in ((whole, 0.5), (0 * counts, 1.0), (0.3 * counts, 0.25), (real, 1e-6)):
        np.testing.assert_allclose(prefixes(ties, k, lam)[1], of_prefixes(ties, k, lam, weights)[1], atol=1e-6)
    arguments = x, 2 + 0.1 * counts, 0.7
    for one, other in zip(prefixes(*arguments)[0], of_prefixes(*arguments, weights)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)


def test_prefixes_ignore_later_entries():
    @jax.jit
    def of_the_first(x, k, lam, length):
        """The masks, and the gradients of a sum over the first of them."""

        def total(x, k, lam):
            mask = ops.prefix_topk_threshold(x, k, lam=lam).entry(x)
            return jnp.where(jnp.arange(LENGTH) < length, jnp.sin(1 + jnp.arange(LENGTH)) * mask, 0.0).sum(), mask

        return jax.grad(total, (0, 1, 2), has_aux=True)(x, k, lam)

    random = np.random.default_rng(0)
    for length in (1, 2, 3, 5, 17, LENGTH - 1):
        x = np.float32(random.normal(size=LENGTH))
        later = np.float32(random.choice([1e30, -np.inf, np.nan, 0.3, np.inf], LENGTH - length))
        ((in_x, *slopes), mask), ((its_in_x, *its_slopes), other) = jax.device_get(
            [of_the_first(np.r_[x[:length], end], 3.0, 0.5, length) for end in (x[length:], later)]
        )
        np.testing.assert_array_equal(mask[:length], other[:length])
        np.testing.assert_array_equal(in_x[:length], its_in_x[:length])
        np.testing.assert_array_equal(slopes, its_slopes)
        assert not np.any(in_x[length:])


def test_absent_entries_count_for_no_prefix():
    x = jnp.array([-jnp.inf, 2.0, jnp.nan, 5.0])
    np.testing.assert_array_equal(ops.prefix_topk_threshold(x, 1, lam=1.0).entry(x), [0, 1, np.nan, np.nan])
    there = np.array([True, False, True, True])
    found = ops.prefix_topk_threshold([1.0, 9.0, 0.5, 0.25], 1, lam=1.0, where=there)
    for absent in (9.0, np.nan, np.inf):
        np.testing.assert_allclose(found.entry(jnp.array([1.0, absent, 0.5, 0.25])), [1, 0, 0.25, 0])


ENDS = np.float32([[4.0, 1.0, 2.5, -1000.0], [4.0, 1.0, 2.5, 0.9]])  # 1.5 between the second and the third
ROWS = np.concatenate([*4 * [ENDS], np.full((1, 4), -np.inf, np.float32)])
K = np.float32([0, 0, 1, 1, 2, 2, 4, 4, 1])
LEAST = np.float32([4, 4, 4, 4, 2.5, 2.5, -1000, 0.9, 0])  # selected; if none is, the largest entry
MASKS = np.array([*oracles.by_rows(lambda row, k, _: oracles.hard(row, k), ROWS[:-1], K[:-1], 0), np.zeros(4)])


def test_threshold_if_nothing_is_partial():
    """The least entry selected minus lam, whatever lies below; if none is selected, the largest entry."""
    fit = jax.jit(ops.topk_threshold)
    for lam in (0.0, 0.25):
        tau = fit(ROWS, K, lam=np.float32(lam)).tau
        np.testing.assert_allclose(tau, LEAST - lam * (K > 0) * (ROWS.max(axis=1) > 0), rtol=1e-6)
    known = ops.topk_threshold(ROWS, K, lam=lam)
    np.testing.assert_array_equal(known.tau, tau)
    np.testing.assert_array_equal(known(ROWS), MASKS)
    prefixes = [ops.prefix_topk_threshold(row, k, lam=lam).tau for row, k in zip(ROWS, K, strict=True)]
    np.testing.assert_array_equal(np.array(prefixes)[:, -1], tau)
    np.testing.assert_allclose(prefixes[4], [3.75, 0.75, 2.25, 2.25], rtol=1e-6)


def test_hard_threshold_limits_the_ties():
    """Selects what is above, and of the ties as many as were selected where it was found."""
    x, k = np.concatenate([ROWS, np.float32([[3.0, 1.0, 2.0, 2.0]])]), np.append(K, np.float32(2))
    fit = ops.topk_threshold(x, k, lam=0.0)
    np.testing.assert_array_equal(fit.tau, [*LEAST, 2])
    np.testing.assert_array_equal(fit(x), [*MASKS, [1, 0, 1, 0]])
    np.testing.assert_array_equal(np.asarray(fit(np.tile(np.float32([2.5, 2.0, 2.0, 1.9]), (10, 1))))[-1], [1, 1, 0, 0])
    assert np.asarray(fit.entry(2.0))[-1] == 1


@pytest.mark.parametrize("find", [ops.topk_threshold, ops.prefix_topk_threshold])
def test_derivatives_if_nothing_is_partial(find):
    slopes = jax.jit(jax.grad(lambda x, lam: find(x, 2, lam=lam).tau.reshape(-1)[-1], (0, 1)))
    of_x, of_lam = slopes(ENDS[0], np.float32(0.25))
    np.testing.assert_allclose(of_x, [0, 0, 1, 0])
    np.testing.assert_allclose(of_lam, -1, rtol=1e-6)
