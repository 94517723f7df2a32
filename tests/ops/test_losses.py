"""The top-k losses: gradient, sign, convexity, and what the paper's form of them does for k > 1."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import relaxed_topk_value, topk_fenchel_young_loss, topk_fenchel_young_mixture, topk_mask
from tests.ops import oracles

X = oracles.samples((8, 9), seed=3)
LABELS = np.array([0, 3, 8, 2, 2, 5, 7, 1])
MULTI_HOT = (oracles.samples((8, 9), seed=4) > 0.4).astype(np.float64)
K = np.array([1, 2, 3, 4.5, 1, 3, 8, 9.0])
LAM = np.array([0.1, 1, 0.5, 2, 0.01, 10, 0.3, 0.0])


def smoothed(t, k):
    """Targets in the polytope, row by row."""
    rows = []
    for row, size in zip(t, np.broadcast_to(k, len(t)), strict=True):
        m, n = row.sum(), row.size
        rows.append(row * size / m if m > size else row + (size - m) / max(n - m, 1) * (1 - row))
    return np.stack(rows)


def onehot(labels):
    return np.eye(9)[labels]


def cancelling(x, t, k, lam, p):
    """The loss as it is written: value minus inner product."""
    return np.asarray(relaxed_topk_value(x, k, lam=lam, p=p)) - (x * t).sum(-1)


@pytest.mark.parametrize(
    ("p", "targets", "target"),
    [(2.0, LABELS, "one_hot"), (4 / 3, MULTI_HOT, "smooth")],
)
def test_value_and_gradient(x64, p, targets, target):
    def loss(x):
        losses = topk_fenchel_young_loss(x, targets, K, lam=LAM, p=p, target=target)
        return losses.sum(), losses

    gradient, losses = jax.jit(jax.grad(loss, has_aux=True))(X)
    t = onehot(targets) if targets.ndim == 1 else targets
    moved = t if target == "one_hot" else smoothed(t, K)
    expected = cancelling(X, moved, K, LAM, p) + LAM / p * (moved**p).sum(-1)
    np.testing.assert_allclose(losses, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gradient, topk_mask(X, K, lam=LAM, p=p) - moved, rtol=0, atol=1e-14)


def test_derivatives_in_all_arguments_to_second_order(x64):
    def loss(x, k, lam, t):
        return topk_fenchel_young_loss(x, t, k, lam=lam, p=4 / 3, target="smooth")

    lam = np.where(LAM == 0, 0.7, LAM)
    rows = [0, 1, 2, 5]
    arguments = X, np.array([1.3, 2.2, 3.4, 4.6, 1.2, 3.1, 7.7, 5.2]), lam, 0.1 + 0.8 * MULTI_HOT
    oracles.check_derivatives(loss, [argument[rows] for argument in arguments], tolerance=1e-5)


def test_it_is_never_negative_and_0_at_the_mask_or_where_the_positives_lead_by_lam():
    x = oracles.samples((500, 9), 8, np.float32) * np.geomspace(1e-3, 1e3, 500, dtype=np.float32)[:, None]
    one_hot = np.eye(9, dtype=np.float32)[np.arange(500) % 9]
    pairs, k = one_hot + np.roll(one_hot, 1, axis=1), np.linspace(0, 9, 500, dtype=np.float32)
    smooth = functools.partial(topk_fenchel_young_loss, lam=0.5, p=4 / 3, target="smooth")
    plain = functools.partial(topk_fenchel_young_loss, lam=0.5, p=4 / 3)
    for losses in (smooth(x, one_hot, k), plain(x, one_hot, np.full(500, 1)), plain(x, pairs, np.full(500, 2))):
        assert losses.min() >= 0
        assert losses.max() > 1
    # A target that is off by a rounding costs its distance to the threshold.
    zeros = np.asarray(smooth(x, topk_mask(x, k, lam=0.5, p=4 / 3), k))
    assert np.all(zeros >= 0)
    assert np.all(zeros <= 5e-6 * (1 + np.abs(x).max(-1)))
    good = np.where(pairs == 1, x + np.abs(x).max(-1, keepdims=True) + 1, np.minimum(x, 0))
    np.testing.assert_allclose(plain(good, pairs, np.full(500, 2)), np.zeros(500), atol=1e-7)


@pytest.mark.parametrize("target", ["one_hot", "smooth"])
def test_absent_classes_and_absent_labels(x64, target):
    others = np.arange(9) != 4
    infinite = np.where(others, X, -np.inf)
    # -inf; not taking part; -inf at the label; nothing but -inf
    x = np.concatenate([infinite, X, infinite, np.full((2, 9), -np.inf)])
    labels = np.concatenate([LABELS, LABELS, np.full(8, 4), [1, 2]])
    k, lam = np.concatenate([K, K, K, [3, 3]]), np.concatenate([LAM, LAM, LAM, [0.1, 0.1]])
    where = np.ones(x.shape, bool)
    where[8:16] = others

    def total(x):
        losses = topk_fenchel_young_loss(x, labels, k, lam=lam, target=target, where=where)
        return losses.sum(), losses

    gradient, losses = jax.device_get(jax.jit(jax.grad(total, has_aux=True))(x))
    labels = np.where(LABELS > 4, LABELS - 1, LABELS)
    expected = topk_fenchel_young_loss(X[:, others], labels, np.minimum(K, 8), lam=LAM, target=target)
    np.testing.assert_allclose(losses[:16].reshape(2, 8), np.stack([expected, expected]), rtol=1e-12, atol=1e-14)
    assert np.isfinite(gradient[:16]).all()
    assert np.all(gradient[:16, 4] == 0)
    if target == "one_hot":
        assert np.all(losses[16:24] == np.inf)
    else:
        assert np.isfinite(losses[16:]).all()
        np.testing.assert_array_equal(losses[24:], [0, 0])


def both_losses(x, targets, k=2, **options):
    single = topk_fenchel_young_loss(x, targets, k, lam=0.5, **options)
    return single, topk_fenchel_young_mixture(x, targets, np.array([0.25, 0.5]), lam=0.5, **options)


@jax.jit
def both_with_gradient(x, labels):
    def total(x):
        losses = both_losses(x, labels)
        return sum(map(jnp.sum, losses)), losses

    return jax.grad(total, has_aux=True)(x)[::-1]


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_a_label_out_of_range_that_is_not_known_gives_nan(dtype):
    x, labels = X.astype(np.float32), LABELS.astype(dtype)
    labels[3], labels[5] = 9, 200 if dtype == np.uint8 else -1
    wrong = np.isin(np.arange(8), (3, 5))
    losses, gradient = jax.device_get(both_with_gradient(x, labels))
    np.testing.assert_array_equal(np.isnan(gradient), np.broadcast_to(wrong[:, None], gradient.shape))
    right, _ = jax.device_get(both_with_gradient(x, LABELS.astype(dtype)))
    for loss, expected in zip(losses, right, strict=True):
        np.testing.assert_array_equal(np.isnan(loss), wrong)
        np.testing.assert_allclose(loss[~wrong], expected[~wrong], rtol=1e-6)
    wide = oracles.samples((2, 600), 3, np.float32)  # a label of a byte is not taken for one 256 further
    expected = topk_fenchel_young_loss(wide, np.array([7, 200]), 3)
    np.testing.assert_array_equal(topk_fenchel_young_loss(wide, np.uint8([7, 200]), 3), expected)


@pytest.mark.parametrize("known", [True, False])
def test_what_is_ignored_has_neither_loss_nor_gradient_nor_weight(known):
    labels = np.where(np.arange(8) % 3 == 1, -100, LABELS).astype(np.int32)
    counted = labels != -100
    x = np.where(counted[:, None], X, np.nan).astype(np.float32)  # not even its NaN matters

    def losses_and_means(x, traced):
        ignoring = {"targets": labels if known else traced, "ignore_index": -100}

        def total(x):
            means = both_losses(x, reduction="mean", **ignoring)
            return sum(means), means

        gradient, means = jax.grad(total, has_aux=True)(x)
        return both_losses(x, **ignoring), means, gradient

    compiled = jax.jit(losses_and_means)
    losses, means, gradient = jax.device_get(compiled(x, labels))
    expected, _ = jax.device_get(both_with_gradient(X.astype(np.float32), LABELS.astype(np.int32)))
    for loss, mean, wanted in zip(losses, means, expected, strict=True):
        assert np.all(loss[~counted] == 0)
        np.testing.assert_allclose(loss[counted], wanted[counted], rtol=1e-6)
        np.testing.assert_allclose(mean, np.mean(wanted[counted]), rtol=1e-6)
    assert np.all(gradient[~counted] == 0)
    assert np.all(np.abs(gradient[counted]).max(-1) > 0)
    if not known:
        assert compiled(x, np.full(8, -100, np.int32))[1] == (0, 0)


EXAMPLE, OF_CLASS = np.linspace(0, 2, 8), np.linspace(0.5, 2, 9)


def single(targets=LABELS, **options):
    return topk_fenchel_young_loss(X, targets, 2, lam=0.5, **options)


def mixed(targets=LABELS, **options):
    return topk_fenchel_young_mixture(X, targets, np.array([0.25, 0.5]), lam=0.5, **options)


@pytest.mark.parametrize("loss", [single, mixed])
def test_weights_and_reduction(x64, loss):
    plain = np.asarray(loss())
    weighted = plain * EXAMPLE * OF_CLASS[LABELS]
    options = {"example_weights": EXAMPLE, "class_weights": OF_CLASS}
    np.testing.assert_allclose(loss(**options), weighted, rtol=1e-12)
    np.testing.assert_allclose(loss(reduction="sum", **options), weighted.sum(), rtol=1e-12)
    mean = weighted.sum() / np.sum(EXAMPLE * OF_CLASS[LABELS])  # as in torch.nn.CrossEntropyLoss
    np.testing.assert_allclose(loss(reduction="mean", **options), mean, rtol=1e-12)
    np.testing.assert_allclose(loss(reduction="mean"), plain.mean(), rtol=1e-12)
    if loss is single:
        slope = jax.jit(jax.grad(lambda w: loss(example_weights=w, reduction="sum")))(np.zeros(8))
        np.testing.assert_allclose(slope, plain, rtol=1e-12)


def test_label_smoothing(x64):
    smoothed_labels = 0.9 * onehot(LABELS) + 0.1 / 9

    def written(k):
        return cancelling(X, smoothed_labels, k, 0.5, 2.0) + 0.5 / 2 * (smoothed_labels**2).sum(-1)

    np.testing.assert_allclose(single(label_smoothing=0.1), written(2), rtol=1e-12)
    np.testing.assert_allclose(mixed(label_smoothing=0.1), 0.25 * written(1) + 0.5 * written(2), rtol=1e-12)
    present = np.arange(9) != 4
    smoothed_labels = np.where(present, 0.9 * MULTI_HOT + 0.1 * MULTI_HOT[:, present].sum(1, keepdims=True) / 8, 0)
    targets = np.concatenate([MULTI_HOT, np.clip(smoothed_labels, 0, 1)])
    share = np.repeat([0.1, 0], 8)
    losses = topk_fenchel_young_loss(
        np.concatenate([X, X]), targets, 2, lam=0.5, where=present, target="smooth", label_smoothing=share
    )
    found, expected = np.asarray(losses).reshape(2, 8)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_reduced_loss_has_the_dtype_of_the_logits():
    x = X.astype(jnp.bfloat16)
    mean = np.asarray(topk_fenchel_young_loss(x, LABELS, 2, reduction="mean"))
    expected = np.asarray(topk_fenchel_young_loss(x.astype(np.float32), LABELS, 2, reduction="mean"))
    assert mean.dtype == jnp.bfloat16
    assert mean == expected.astype(jnp.bfloat16)


def test_mixture(x64):
    weights = np.array([0.5, 0.0, 0.3, 0.2])
    losses = [np.asarray(topk_fenchel_young_loss(X, LABELS, k, lam=0.5, p=1.5)) for k in (1, 2, 3, 4)]
    expected = sum(w * loss for w, loss in zip(weights, losses, strict=True))
    mixture = topk_fenchel_young_mixture(X, LABELS, weights, lam=0.5, p=1.5)
    np.testing.assert_allclose(mixture, expected, rtol=1e-12)
    gradient = jax.jit(jax.grad(lambda x: topk_fenchel_young_mixture(x, MULTI_HOT, weights, target="smooth").sum()))(X)
    masks = [oracles.by_rows(oracles.pooled, X, k, 0.1) for k in (1, 2, 3, 4)]
    expected = sum(w * (y - smoothed(MULTI_HOT, k + 1)) for k, (w, y) in enumerate(zip(weights, masks, strict=True)))
    np.testing.assert_allclose(gradient, expected, atol=1e-12)


def test_a_target_where_the_mask_underflows():
    """``y ** (p - 1)`` is 0.17 where ``y`` is 5e-42."""
    x = np.array([0.6475, -0.2228, 1.3776, -0.8819, 0.0062, 2.5009, -0.0465, 0.4264, 0.3311, -1.0001])
    target = np.eye(10)[9]
    single = topk_fenchel_young_loss(np.float32(x), np.float32(target), k=4.2255, lam=1.6477, p=1.019)
    with jax.enable_x64(True):
        double = topk_fenchel_young_loss(x, target, k=4.2255, lam=1.6477, p=1.019)
    np.testing.assert_allclose(single, double, rtol=3e-6)  # a position is raised to the power 53


def test_an_example_without_weight_costs_nothing_even_if_it_is_infinite():
    reduction = "mean"
    x = np.float32([[2, 0, 1], [2, -np.inf, 1]])

    def loss(x, weights):
        return topk_fenchel_young_loss(x, [0, 1], 1, lam=1.0, example_weights=weights, reduction=reduction)

    value, gradient = jax.value_and_grad(loss)(x, np.float32([1, 0]))
    np.testing.assert_allclose(value, topk_fenchel_young_loss(x[0], 0, 1, lam=1.0), atol=1e-7)
    np.testing.assert_array_equal(gradient[1], 0)
    assert np.isposinf(loss(x, np.float32([1, 0.5])))
    in_weights = jax.grad(loss, argnums=1)(np.float32([[2, 0, 1], [2, 1, 1]]), np.float32([1, 0]))
    assert in_weights[1] > 0  # what an example would cost is known all the same
    assert not np.isnan(jax.grad(loss, argnums=1)(x, np.float32([1, 0]))).any()


def test_a_k_without_weight_costs_nothing_even_if_it_is_infinite():
    x = np.float32([[2, -np.inf, 1], [2, 0, 1]])
    labels = np.array([1, 1])

    def total(x, weights):
        losses = topk_fenchel_young_mixture(x, labels, weights, lam=1.0)
        return jnp.sum(losses), losses

    (_, found), gradient = jax.value_and_grad(total, has_aux=True)(x, np.float32([0, 0.5]))
    second = topk_fenchel_young_loss(x[1], 1, 2, lam=1.0)
    np.testing.assert_allclose(found, [np.inf, 0.5 * second], rtol=1e-6)
    assert np.isfinite(gradient).all()
    slopes, found = jax.grad(total, argnums=1, has_aux=True)(x, np.zeros(2, np.float32))
    np.testing.assert_array_equal(found, [0, 0])
    assert np.isfinite(slopes).all()
