"""The top-k losses: gradient, sign, convexity, and what the paper's form of them does for k > 1."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ops import topk_fenchel_young_loss, topk_fenchel_young_mixture, topk_surrogate_loss
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


def test_derivatives_to_second_order(x64):
    def loss(x, k, lam, t):
        return topk_fenchel_young_loss(x, t, k, lam=lam, p=4 / 3, target="smooth")

    arguments = X[:4], np.array([1.3, 2.2, 3.4, 3.1]), np.array([0.1, 1, 0.5, 10]), 0.1 + 0.8 * MULTI_HOT[:4]
    oracles.check_derivatives(loss, arguments, tolerance=1e-5)


def test_loss_is_nonnegative_and_0_at_mask():
    """The loss is also 0 where the positives lead by lam."""
    x = oracles.samples((500, 9), 8, np.float32) * np.geomspace(1e-3, 1e3, 500, dtype=np.float32)[:, None]
    one_hot = np.eye(9, dtype=np.float32)[np.arange(500) % 9]
    pairs, k = one_hot + np.roll(one_hot, 1, axis=1), np.linspace(0, 9, 500, dtype=np.float32)
    plain = functools.partial(topk_fenchel_young_loss, lam=0.5, p=4 / 3)
    smooth = functools.partial(plain, target="smooth")
    for losses in (smooth(x, one_hot, k), plain(x, one_hot, np.full(500, 1)), plain(x, pairs, np.full(500, 2))):
        assert losses.min() >= 0
        assert losses.max() > 1
    # A target that is off by a rounding costs its distance to the threshold.
    mask = oracles.differentiated(x, k, 0.5, 4 / 3)["value"].astype(np.float32)
    zeros = np.asarray(smooth(x, mask, k))
    assert np.all(zeros >= 0)
    assert np.all(zeros <= 5e-6 * (1 + np.abs(x).max(-1)))
    good = np.where(pairs == 1, x + np.abs(x).max(-1, keepdims=True) + 1, np.minimum(x, 0))
    np.testing.assert_allclose(plain(good, pairs, np.full(500, 2)), np.zeros(500), atol=1e-7)
    # A label that is absent, and nothing but absent classes.
    x[250, 250 % 9], x[251] = -np.inf, -np.inf
    assert plain(x, one_hot, np.full(500, 1))[250] == np.inf
    assert np.isfinite(smooth(x, one_hot, k)).all()
    assert smooth(x, one_hot, k)[251] == 0


def test_ignored_labels_cost_nothing():
    """Wrong labels make loss, mean and gradient NaN."""

    @jax.jit
    def losses_and_mean(x, labels):
        """Losses of a mixture; and of one k their mean, and its gradient."""
        options = {"lam": 0.5, "ignore_index": -100}
        losses = topk_fenchel_young_mixture(x, labels, np.array([0.25, 0.5]), **options)
        mean = functools.partial(topk_fenchel_young_loss, labels=labels, k=2, reduction="mean", **options)
        return losses, *jax.value_and_grad(mean)(x)

    second, first = (written(X, onehot(LABELS), k, 0.5) for k in (2, 1))
    mixed = 0.25 * first + 0.5 * second
    labels, x = LABELS.astype(np.int32), X.astype(np.float32)
    wrong, ignored = np.isin(np.arange(8), (3, 5)), np.arange(8) % 3 == 1
    losses, mean, gradient = jax.device_get(losses_and_mean(x, np.where(wrong, np.int32(4 * [9] + 4 * [-1]), labels)))
    np.testing.assert_array_equal(np.isnan(gradient), np.broadcast_to(wrong[:, None], gradient.shape))
    assert np.isnan(mean)
    np.testing.assert_allclose(losses, np.where(wrong, np.nan, mixed), rtol=1e-6)

    labels = np.where(ignored, -100, labels).astype(np.int32)
    x[ignored] = np.nan  # not even its NaN matters
    known = topk_fenchel_young_loss(x, labels, 2, lam=0.5, ignore_index=-100)  # no mistake where it can be seen
    losses, mean, gradient = jax.device_get(losses_and_mean(x, labels))
    np.testing.assert_allclose(known, np.where(ignored, 0, second), rtol=1e-6)
    np.testing.assert_allclose(losses, np.where(ignored, 0, mixed), rtol=1e-6)
    np.testing.assert_allclose(mean, np.mean(second[~ignored]), rtol=1e-6)
    assert np.all(gradient[ignored] == 0)
    assert np.all(np.abs(gradient[~ignored]).max(-1) > 0)
    assert losses_and_mean(x, np.full(8, -100, np.int32))[1] == 0


def test_weights_smoothing_and_reduction(x64):
    present, share = np.arange(9) != 4, np.linspace(0, 0.5, 8)
    examples, classes = np.linspace(0, 2, 8), np.linspace(0.5, 2, 9)
    options = {"where": present, "label_smoothing": share, "class_weights": classes}
    single = functools.partial(topk_fenchel_young_loss, X, LABELS, 2, lam=0.5, **options)
    targets = (1 - share)[:, None] * onehot(LABELS) + share[:, None] / 8
    plain = written(X[:, present], targets[:, present], 2, 0.5) * classes[LABELS]
    weighted = plain * examples
    np.testing.assert_allclose(single(example_weights=examples), weighted, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(single(example_weights=examples, reduction="sum"), weighted.sum(), rtol=1e-12)
    mean = weighted.sum() / np.sum(examples * classes[LABELS])  # as in torch.nn.CrossEntropyLoss
    np.testing.assert_allclose(single(example_weights=examples, reduction="mean"), mean, rtol=1e-12)
    slope = jax.jit(jax.grad(lambda w: single(example_weights=w, reduction="sum")))(np.zeros(8))
    np.testing.assert_allclose(slope, plain, rtol=1e-12, atol=1e-14)


def test_mixture(x64):
    weights, share = np.array([0.5, 0.0, 0.3, 0.2]), 0.1
    options = {"lam": 0.5, "p": 1.5, "target": "smooth", "label_smoothing": share}

    def total(x):
        losses = topk_fenchel_young_mixture(x, MULTI_HOT, weights, **options)
        return losses.sum(), losses

    gradient, losses = jax.jit(jax.grad(total, has_aux=True))(X)
    softened = (1 - share) * MULTI_HOT + share * MULTI_HOT.mean(axis=1, keepdims=True)
    targets = [smoothed(softened, k) for k in (1, 2, 3, 4)]
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


def test_zero_weight_hides_infinite_loss():
    def total(x, examples, numbers):
        losses = topk_fenchel_young_mixture(x, np.array([1, 1]), numbers, lam=1.0, example_weights=examples)
        return jnp.sum(losses), losses

    gradients = jax.jit(jax.value_and_grad(total, (0, 1, 2), has_aux=True))
    infinite, finite = np.float32([[0, 2, 1], [2, -np.inf, 1]]), np.float32([[0, 2, 1], [2, 0, 1]])
    one, none, half = np.float32([[1, 0], [0, 0], [0, 0.5]])
    (_, found), (in_x, in_examples, _) = gradients(infinite, one, one)
    np.testing.assert_array_equal(found, [0, 0])  # the first label leads by lam
    np.testing.assert_array_equal(in_x[1], 0)
    assert not np.isnan(in_examples).any()
    assert np.isposinf(gradients(infinite, one + half, one)[0][1][1])
    assert gradients(finite, one, one)[1][1][1] > 0  # what an example would cost is known all the same
    (_, found), (in_x, _, _) = gradients(np.stack([infinite[1], finite[1]]), one + 2 * half, half)
    second = written(np.float64(finite[1:]), np.eye(3)[[1]], 2, 1.0)
    np.testing.assert_allclose(found, [np.inf, 0.5 * second[0]], rtol=1e-6)
    assert np.isfinite(in_x).all()
    (_, found), (_, _, in_numbers) = gradients(infinite, one + 2 * half, none)
    np.testing.assert_array_equal(found, [0, 0])
    assert np.isfinite(in_numbers).all()


def test_infinite_logit_costs_the_limit():
    """It ties with others, and with none that is finite; the surrogate loss is made of this one."""
    rows = np.array([[0, np.inf, 1, 0.3], [np.inf, np.inf, 1, 0], [np.inf, 3, 2.8, 2.9], [-np.inf, np.inf, -3, -7]])
    settings = np.array([[0.5, 0.5], [1, 0.5], [2, 0], [2.5, 0.5]])
    x, (k, lam) = np.tile(np.repeat(rows, 4, axis=0), (4, 1)), np.repeat(settings, 16, axis=0).T
    x = np.stack([np.where(x == np.inf, size, x) for size in (np.inf, 1e3, 2e3)])
    labels = np.broadcast_to(np.tile(np.arange(4), 16), (3, 64))

    @jax.jit
    def losses(x, k, lam):
        loss = functools.partial(topk_fenchel_young_loss, x, labels, k, lam=lam)
        return jnp.stack([loss(), loss(target="smooth"), topk_surrogate_loss(x, labels, jnp.maximum(k, 1), lam=lam)], 1)

    found, large, larger = np.asarray(losses(*map(np.float32, (x, k, lam))))
    with np.errstate(invalid="ignore"):
        growth = larger - large
    np.testing.assert_allclose(found, np.where(np.abs(growth) > 1, np.copysign(np.inf, growth), larger), atol=1e-3)
