"""The top-k losses: gradient, sign, convexity, and what the paper's form of them does for k > 1."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ops import topk_fenchel_young_loss, topk_fenchel_young_mixture, topk_mask
from tests.ops import oracles

X = oracles.samples((8, 9), seed=3)
LABELS = np.array([0, 3, 8, 2, 2, 5, 7, 1])
MULTI_HOT = (oracles.samples((8, 9), seed=4) > 0.4).astype(np.float64)


def smoothed(t, k):
    """Targets in the polytope, row by row."""
    rows = []
    for row, size in zip(t, np.broadcast_to(k, len(t)), strict=True):
        m, n = row.sum(), row.size
        rows.append(row * size / m if m > size else row + (size - m) / max(n - m, 1) * (1 - row))
    return np.stack(rows)


def onehot(labels):
    return np.eye(9)[labels]


def written(x, t, k, lam, p=2.0):
    """The loss as the paper writes it: the value, of the oracle's mask, less that of the targets."""
    y = oracles.by_rows(functools.partial(oracles.pooled, p=p), x, k, lam)
    return (x * (y - t)).sum(-1) + np.asarray(lam) / p * (t**p - y**p).sum(-1)


def test_derivatives_in_all_arguments_to_second_order(x64):
    def loss(x, k, lam, t):
        return topk_fenchel_young_loss(x, t, k, lam=lam, p=4 / 3, target="smooth")

    arguments = X[:4], np.array([1.3, 2.2, 3.4, 3.1]), np.array([0.1, 1, 0.5, 10]), 0.1 + 0.8 * MULTI_HOT[:4]
    oracles.check_derivatives(loss, arguments, tolerance=1e-5)


def test_it_is_never_negative_and_0_at_the_mask_or_where_the_positives_lead_by_lam():
    x = oracles.samples((500, 9), 8, np.float32) * np.geomspace(1e-3, 1e3, 500, dtype=np.float32)[:, None]
    one_hot = np.eye(9, dtype=np.float32)[np.arange(500) % 9]
    pairs, k = one_hot + np.roll(one_hot, 1, axis=1), np.linspace(0, 9, 500, dtype=np.float32)
    plain = functools.partial(topk_fenchel_young_loss, lam=0.5, p=4 / 3)
    smooth = functools.partial(plain, target="smooth")
    for losses in (smooth(x, one_hot, k), plain(x, one_hot, np.full(500, 1)), plain(x, pairs, np.full(500, 2))):
        assert losses.min() >= 0
        assert losses.max() > 1
    # A target that is off by a rounding costs its distance to the threshold.
    zeros = np.asarray(smooth(x, topk_mask(x, k, lam=0.5, p=4 / 3), k))
    assert np.all(zeros >= 0)
    assert np.all(zeros <= 5e-6 * (1 + np.abs(x).max(-1)))
    good = np.where(pairs == 1, x + np.abs(x).max(-1, keepdims=True) + 1, np.minimum(x, 0))
    np.testing.assert_allclose(plain(good, pairs, np.full(500, 2)), np.zeros(500), atol=1e-7)


def test_absent_labels_and_rows_of_nothing(x64):
    """A label that is -inf, or does not take part; nothing but -inf. Other absent classes are random problems."""
    others = np.arange(9) != 4
    x = np.stack([np.where(others, X[0], -np.inf), X[1], np.full(9, -np.inf)])
    where = others | (np.arange(3) != 1)[:, None]
    losses = functools.partial(topk_fenchel_young_loss, x, np.full(3, 4), 3, lam=0.1, where=where)
    assert losses(target="one_hot")[0] == np.inf
    smooth = np.asarray(losses(target="smooth"))
    assert np.isfinite(smooth).all()
    assert smooth[2] == 0


def test_ignored_labels_have_neither_loss_nor_gradient_nor_weight_and_wrong_ones_are_nan():
    @jax.jit
    def losses_and_means(x, labels):
        """Single loss and mixture, each also as a mean, and the gradient of the means."""

        def both(x, **options):
            options |= {"lam": 0.5, "ignore_index": -100}
            single = topk_fenchel_young_loss(x, labels, 2, **options)
            return single, topk_fenchel_young_mixture(x, labels, np.array([0.25, 0.5]), **options)

        def total(x):
            means = both(x, reduction="mean")
            return sum(means), means

        gradient, means = jax.grad(total, has_aux=True)(x)
        return both(x), means, gradient

    second, first = (written(X, onehot(LABELS), k, 0.5) for k in (2, 1))
    wanted = second, 0.25 * first + 0.5 * second
    labels, x = LABELS.astype(np.int32), X.astype(np.float32)
    wrong, ignored = np.isin(np.arange(8), (3, 5)), np.arange(8) % 3 == 1
    losses, means, gradient = jax.device_get(losses_and_means(x, np.where(wrong, np.int32(4 * [9] + 4 * [-1]), labels)))
    np.testing.assert_array_equal(np.isnan(gradient), np.broadcast_to(wrong[:, None], gradient.shape))
    assert np.isnan(means).all()
    for loss, expected in zip(losses, wanted, strict=True):
        np.testing.assert_array_equal(np.isnan(loss), wrong)
        np.testing.assert_allclose(loss[~wrong], expected[~wrong], rtol=1e-6)

    labels = np.where(ignored, -100, labels).astype(np.int32)
    x[ignored] = np.nan  # not even its NaN matters
    known = topk_fenchel_young_loss(x, labels, 2, lam=0.5, ignore_index=-100)  # no mistake where it can be seen
    losses, means, gradient = jax.device_get(losses_and_means(x, labels))
    np.testing.assert_allclose(known, losses[0], rtol=1e-6)
    for loss, mean, expected in zip(losses, means, wanted, strict=True):
        assert np.all(loss[ignored] == 0)
        np.testing.assert_allclose(loss[~ignored], expected[~ignored], rtol=1e-6)
        np.testing.assert_allclose(mean, np.mean(expected[~ignored]), rtol=1e-6)
    assert np.all(gradient[ignored] == 0)
    assert np.all(np.abs(gradient[~ignored]).max(-1) > 0)
    assert losses_and_means(x, np.full(8, -100, np.int32))[1] == (0, 0)


EXAMPLE, OF_CLASS = np.linspace(0, 2, 8), np.linspace(0.5, 2, 9)


def test_weights_and_reduction(x64):
    single = functools.partial(topk_fenchel_young_loss, X, LABELS, 2, lam=0.5)
    plain = written(X, onehot(LABELS), 2, 0.5)
    weighted = plain * EXAMPLE * OF_CLASS[LABELS]
    options = {"example_weights": EXAMPLE, "class_weights": OF_CLASS}
    np.testing.assert_allclose(single(**options), weighted, rtol=1e-12)
    np.testing.assert_allclose(single(reduction="sum", **options), weighted.sum(), rtol=1e-12)
    mean = weighted.sum() / np.sum(EXAMPLE * OF_CLASS[LABELS])  # as in torch.nn.CrossEntropyLoss
    np.testing.assert_allclose(single(reduction="mean", **options), mean, rtol=1e-12)
    slope = jax.jit(jax.grad(lambda w: single(example_weights=w, reduction="sum")))(np.zeros(8))
    np.testing.assert_allclose(slope, plain, rtol=1e-12)


def test_label_smoothing(x64):
    smoothed_labels = 0.9 * onehot(LABELS) + 0.1 / 9
    second, first = (written(X, smoothed_labels, k, 0.5) for k in (2, 1))
    mixed = topk_fenchel_young_mixture(X, LABELS, np.array([0.25, 0.5]), lam=0.5, label_smoothing=0.1)
    np.testing.assert_allclose(mixed, 0.25 * first + 0.5 * second, rtol=1e-12)
    present = np.arange(9) != 4
    smoothed_labels = np.where(present, 0.9 * MULTI_HOT + 0.1 * MULTI_HOT[:, present].sum(1, keepdims=True) / 8, 0)
    targets = np.concatenate([MULTI_HOT, np.clip(smoothed_labels, 0, 1)])
    share = np.repeat([0.1, 0], 8)
    losses = topk_fenchel_young_loss(
        np.concatenate([X, X]), targets, 2, lam=0.5, where=present, target="smooth", label_smoothing=share
    )
    found, expected = np.asarray(losses).reshape(2, 8)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_mixture(x64):
    weights = np.array([0.5, 0.0, 0.3, 0.2])

    def total(x):
        losses = topk_fenchel_young_mixture(x, MULTI_HOT, weights, lam=0.5, p=1.5, target="smooth")
        return losses.sum(), losses

    gradient, losses = jax.jit(jax.grad(total, has_aux=True))(X)
    targets = [smoothed(MULTI_HOT, k) for k in (1, 2, 3, 4)]
    expected = [written(X, t, k, 0.5, 1.5) for k, t in enumerate(targets, 1)]
    np.testing.assert_allclose(losses, np.tensordot(weights, expected, 1), rtol=1e-12)
    masks = [oracles.by_rows(functools.partial(oracles.pooled, p=1.5), X, k, 0.5) for k in (1, 2, 3, 4)]
    np.testing.assert_allclose(gradient, np.tensordot(weights, np.subtract(masks, targets), 1), atol=1e-12)


def test_a_target_where_the_mask_underflows():
    """``y ** (p - 1)`` is 0.17 where ``y`` is 5e-42."""
    x = np.array([0.6475, -0.2228, 1.3776, -0.8819, 0.0062, 2.5009, -0.0465, 0.4264, 0.3311, -1.0001])
    target = np.eye(10)[9]
    single = topk_fenchel_young_loss(np.float32(x), np.float32(target), k=4.2255, lam=1.6477, p=1.019)
    double = written(x[None], target[None], 4.2255, 1.6477, 1.019)
    np.testing.assert_allclose(single, double[0], rtol=3e-6)  # a position is raised to the power 53


def test_what_has_no_weight_costs_nothing_even_if_it_is_infinite():
    loss = functools.partial(topk_fenchel_young_loss, targets=np.array([0, 1]), k=1, lam=1.0, reduction="mean")
    of_examples = jax.jit(jax.value_and_grad(lambda x, weights: loss(x, example_weights=weights), (0, 1)))
    x = np.float32([[2, 0, 1], [2, -np.inf, 1]])
    value, (in_x, in_weights) = of_examples(x, np.float32([1, 0]))
    assert value == 0  # the label leads by lam
    np.testing.assert_array_equal(in_x[1], 0)
    assert not np.isnan(in_weights).any()
    assert np.isposinf(of_examples(x, np.float32([1, 0.5]))[0])
    _, (_, in_weights) = of_examples(np.float32([[2, 0, 1], [2, 1, 1]]), np.float32([1, 0]))
    assert in_weights[1] > 0  # what an example would cost is known all the same

    def total(x, weights):
        losses = topk_fenchel_young_mixture(x, np.array([1, 1]), weights, lam=1.0)
        return jnp.sum(losses), losses

    of_numbers = jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True))
    x = np.float32([[2, -np.inf, 1], [2, 0, 1]])
    (_, found), (in_x, _) = of_numbers(x, np.float32([0, 0.5]))
    second = written(np.float64(x[1:]), np.eye(3)[[1]], 2, 1.0)
    np.testing.assert_allclose(found, [np.inf, 0.5 * second[0]], rtol=1e-6)
    assert np.isfinite(in_x).all()
    (_, found), (_, in_weights) = of_numbers(x, np.zeros(2, np.float32))
    np.testing.assert_array_equal(found, [0, 0])
    assert np.isfinite(in_weights).all()
