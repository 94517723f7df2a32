"""The top-k losses: gradient, sign, convexity, and what the paper's form of them does for k > 1."""

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
PS = pytest.mark.parametrize("p", [4 / 3, 2.0])


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
    [(2.0, LABELS, "one_hot"), (4 / 3, LABELS, "smooth"), (4 / 3, MULTI_HOT, "one_hot"), (2.0, MULTI_HOT, "smooth")],
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


@pytest.mark.parametrize(("p", "target"), [(2.0, "one_hot"), (4 / 3, "smooth")])
def test_derivatives_in_k_lam_and_targets(x64, p, target):
    lam = np.where(LAM == 0, 0.7, LAM)
    arguments = np.array([1.3, 2.2, 3.4, 4.6, 1.2, 3.1, 7.7, 5.2]), lam, 0.1 + 0.8 * MULTI_HOT
    tangents = oracles.samples((8,), 5), lam * oracles.samples((8,), 6), oracles.samples((8, 9), 7)

    @jax.jit
    def with_gradients(k, lam, t):
        def loss(k, lam, t):
            return topk_fenchel_young_loss(X, t, k, lam=lam, p=p, target=target).sum()

        return jax.value_and_grad(loss, (0, 1, 2))(k, lam, t)

    def at(step):
        return with_gradients(*(a + step * b for a, b in zip(arguments, tangents, strict=True)))

    pushed = sum(np.vdot(g, v) for g, v in zip(at(0)[1], tangents, strict=True))
    assert abs(pushed) > 1e-2
    np.testing.assert_allclose(pushed, (at(1e-6)[0] - at(-1e-6)[0]) / 2e-6, rtol=1e-6)


@PS
def test_second_derivative_is_that_of_the_mask(x64, p):
    direction = oracles.samples(X.shape, 11)

    @jax.jit
    def moved(x):
        gradient = jax.grad(lambda x: topk_fenchel_young_loss(x, LABELS, 3, lam=1.0, p=p).sum())
        return [jax.jvp(f, (x,), (direction,))[1] for f in (gradient, lambda x: topk_mask(x, 3, lam=1.0, p=p))]

    found, expected = moved(X)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-12)


OF_ALL_SIZES = oracles.samples((500, 9), 8, np.float32) * np.geomspace(1e-3, 1e3, 500, dtype=np.float32)[:, None]
ONE_HOT = np.eye(9, dtype=np.float32)[np.arange(500) % 9]


@PS
def test_smooth_is_never_negative_and_0_at_the_mask(p):
    x, k = OF_ALL_SIZES, np.linspace(0, 9, 500, dtype=np.float32)
    losses = np.asarray(topk_fenchel_young_loss(x, ONE_HOT, k, lam=0.5, p=p, target="smooth"))
    assert losses.min() >= 0
    assert losses.max() > 1
    own = np.asarray(topk_mask(x, k, lam=0.5, p=p))
    # A target that is off by a rounding costs its distance to the threshold.
    zeros = np.asarray(topk_fenchel_young_loss(x, own, k, lam=0.5, p=p, target="smooth"))
    assert np.all(zeros >= 0)
    assert np.all(zeros <= 5e-6 * (1 + np.abs(x).max(-1)))


@PS
def test_one_hot_is_never_negative_and_0_at_the_target_where_as_many_are_positive_as_selected(p):
    x, pairs = OF_ALL_SIZES, ONE_HOT + np.roll(ONE_HOT, 1, axis=1)
    for targets, k in ((ONE_HOT, 1), (pairs, 2)):
        losses = np.asarray(topk_fenchel_young_loss(x, targets, k, lam=0.5, p=p))
        assert losses.min() >= 0
        assert losses.max() > 1
    # Where the positives lead by lam the mask is the target.
    good = np.where(pairs == 1, x + np.abs(x).max(-1, keepdims=True) + 1, np.minimum(x, 0))
    np.testing.assert_allclose(topk_fenchel_young_loss(good, pairs, 2, lam=0.5, p=p), np.zeros(500), atol=1e-7)


def test_k_1_is_the_sparsemax_loss(x64):
    # Martins and Astudillo (2016), equation 16, over the support of sparsemax.
    found = np.asarray(topk_fenchel_young_loss(X, LABELS, 1, lam=1.0))
    for x, label, loss in zip(X, LABELS, found, strict=True):
        s = np.sort(x)[::-1]
        size = np.sum(1 + np.arange(1, 10) * s > np.cumsum(s))
        tau = (s[:size].sum() - 1) / size
        expected = -x[label] + 0.5 * np.sum(s[:size] ** 2 - tau**2) + 0.5
        np.testing.assert_allclose(loss, expected, atol=1e-14)


@PS
def test_convex_along_random_chords(x64, p):
    a, b = oracles.samples((2, 400, 9), 9) * 3
    share = np.random.default_rng(0).random((400, 1))

    @jax.jit
    def loss(x):
        return topk_fenchel_young_loss(x, np.arange(400) % 9, 2.5, lam=0.7, p=p)

    at_a, at_b, between = (np.asarray(loss(x)) for x in (a, b, share * a + (1 - share) * b))
    slack = share[:, 0] * at_a + (1 - share[:, 0]) * at_b - between
    assert slack.min() > -1e-12
    assert slack.max() > 0.1


def test_shifts_take_the_one_hot_loss_down_without_bound_and_leave_the_smooth_one():
    shifts = -np.float32([[0], [1], [10], [1e2], [3e2], [1e3], [3e3], [1e4]])
    x, labels = np.round(X[:1].astype(np.float32), 2) + shifts, np.zeros(8, int)
    losses = np.asarray(topk_fenchel_young_loss(x, labels, 3, lam=0.5))
    np.testing.assert_allclose(losses - losses[0], 2 * shifts[:, 0], rtol=1e-3, atol=0.1)  # k - 1 = 2
    losses = np.asarray(topk_fenchel_young_loss(x, labels, 3, lam=0.5, target="smooth"))
    np.testing.assert_allclose(losses, np.full(8, losses[0]), atol=5e-3)
    losses = np.asarray(topk_fenchel_young_loss(x, labels, 1, lam=0.5))
    np.testing.assert_allclose(losses, np.full(8, losses[0]), atol=5e-3)


@PS
def test_small_losses_do_not_cancel(x64, p):
    own = oracles.by_rows(lambda *row: oracles.pooled(*row, p=p), X, 3, 1.0)
    x = 1e3 + X + 1e-2 * oracles.samples(X.shape, 10)
    exact = np.asarray(topk_fenchel_young_loss(x, own, 3, lam=1.0, p=p, target="smooth"))
    single = topk_fenchel_young_loss(
        x.astype(np.float32), own.astype(np.float32), 3, lam=np.float32(1), p=p, target="smooth"
    )
    assert 1e-7 < exact.min() < exact.max() < 1e-2
    # Near 1000 floats are 6e-5 apart: all that is left of the logits' digits is in the loss.
    np.testing.assert_allclose(single, exact, rtol=2e-2, atol=1e-7)


@pytest.mark.parametrize("target", ["one_hot", "smooth"])
def test_minus_inf_and_where(x64, target):
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
    np.testing.assert_allclose(losses[:8], expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(losses[8:16], expected, rtol=1e-12, atol=1e-14)
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
def both_compiled(x, labels):
    return both_losses(x, labels)


@jax.jit
def both_with_gradient(x, labels):
    def total(x):
        losses = both_losses(x, labels)
        return sum(map(jnp.sum, losses)), losses

    return jax.grad(total, has_aux=True)(x)[::-1]


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8])
def test_a_label_out_of_range_that_is_not_known_gives_nan(dtype):
    x, labels = X.astype(np.float32), LABELS.astype(dtype)
    labels[3] = 9
    labels[5] = -1 if np.issubdtype(dtype, np.signedinteger) else 200
    wrong = np.isin(np.arange(8), (3, 5))
    if dtype == np.int32:
        losses, gradient = jax.device_get(both_with_gradient(x, labels))
        np.testing.assert_array_equal(np.isnan(gradient), np.broadcast_to(wrong[:, None], gradient.shape))
    else:
        losses = jax.device_get(both_compiled(x, labels))
    right, _ = jax.device_get(both_with_gradient(x, LABELS.astype(np.int32)))
    for loss, expected in zip(losses, right, strict=True):
        np.testing.assert_array_equal(np.isnan(loss), wrong)
        np.testing.assert_allclose(loss[~wrong], expected[~wrong], rtol=1e-6)


def test_labels_of_a_byte_are_told_from_those_256_further():
    x = oracles.samples((2, 600), 3, np.float32)
    wide = topk_fenchel_young_loss(x, np.array([7, 200]), 3)
    np.testing.assert_array_equal(topk_fenchel_young_loss(x, np.uint8([7, 200]), 3), wide)


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
    assert mean.dtype == jnp.bfloat16
    expected = np.asarray(topk_fenchel_young_loss(x.astype(np.float32), LABELS, 2, reduction="mean"))
    assert mean == expected.astype(jnp.bfloat16)
    total = jax.eval_shape(
        lambda x: topk_fenchel_young_loss(x, np.array([0, 1]), 2, reduction="sum"), np.ones((2, 3), int)
    )
    assert total.dtype == jnp.float32


def test_bfloat16():
    x = (50 * X - 1000).astype(jnp.bfloat16)

    def losses(x):
        return topk_fenchel_young_loss(x, LABELS, 3, p=4 / 3, target="smooth")

    @jax.jit
    def with_gradient(x):
        loss, pull = jax.vjp(losses, x)
        return loss, *pull(jnp.ones_like(loss))

    loss, gradient = jax.device_get(with_gradient(x))
    assert loss.dtype == jnp.bfloat16
    np.testing.assert_allclose(loss.astype(np.float32), losses(x.astype(np.float32)), rtol=1e-2)
    np.testing.assert_allclose(gradient.astype(np.float32).sum(-1), np.zeros(8), atol=2e-2)


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


def test_jit_vmap_and_axis():
    x, lam = X.astype(np.float32), np.maximum(LAM, 0.01).astype(np.float32)

    def loss(x, label, k, lam):
        return topk_fenchel_young_loss(x, label, k, lam=lam, target="smooth")

    expected = loss(x, LABELS, K, lam)
    np.testing.assert_allclose(jax.jit(jax.vmap(loss))(x, LABELS, K.astype(np.float32), lam), expected, rtol=1e-5)
    transposed = topk_fenchel_young_loss(x.T, LABELS, K, lam=lam, target="smooth", axis=0)
    np.testing.assert_allclose(transposed, expected, rtol=1e-6)


def test_nan_marks_its_example():
    x = X.copy()
    x[2, 1] = np.nan
    assert np.isnan(topk_fenchel_young_loss(x, LABELS, 3)).tolist() == [i == 2 for i in range(8)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "hard"}, r"^target .*'hard'"),
        ({"k": 10}, r"^k .*10"),
        ({"lam": -1}, r"^lam .*-1"),
        ({"targets": np.full(8, 9)}, r"^targets .*9"),
        ({"targets": np.zeros(7, int)}, r"^targets .*shape"),
        ({"targets": np.zeros(8)}, r"^targets .*float"),
        ({"targets": 2 * MULTI_HOT}, r"^targets .*2"),
        ({"reduction": "average"}, r"^reduction must be one of 'none', 'mean', 'sum', got 'average'$"),
        ({"ignore_index": -1, "targets": MULTI_HOT}, r"^ignore_index must be None unless targets are labels"),
        ({"class_weights": np.ones(9), "targets": MULTI_HOT}, r"^class_weights must be None unless targets are labels"),
        ({"ignore_index": 0.5}, r"^ignore_index must be a whole number .*0\.5"),
        ({"ignore_index": -100, "targets": np.full(8, -1)}, r"^targets .*-1"),
        ({"class_weights": np.ones(8)}, r"^class_weights must have shape \(9,\).*\(8,\)"),
        ({"class_weights": -np.ones(9)}, r"^class_weights .*-1"),
        ({"example_weights": -np.ones(8)}, r"^example_weights .*-1"),
        ({"example_weights": np.ones(9)}, r"^example_weights .*shape \(8,\), got shape \(9,\)"),
        ({"label_smoothing": 1.5}, r"^label_smoothing .*1\.5"),
    ],
)
def test_errors(arguments, message):
    arguments = {"logits": X, "targets": LABELS, "k": 3} | arguments
    with pytest.raises(ValueError, match=message):
        topk_fenchel_young_loss(**arguments)
    with pytest.raises(ValueError, match=r"^weights .*2"):
        topk_fenchel_young_mixture(X, LABELS, np.ones((2, 2)))


def test_a_target_where_the_mask_underflows():
    """``y ** (p - 1)`` is 0.17 where ``y`` is 5e-42."""
    x = np.array([0.6475, -0.2228, 1.3776, -0.8819, 0.0062, 2.5009, -0.0465, 0.4264, 0.3311, -1.0001])
    target = np.eye(10)[9]
    single = topk_fenchel_young_loss(np.float32(x), np.float32(target), k=4.2255, lam=1.6477, p=1.019)
    with jax.enable_x64(True):
        double = topk_fenchel_young_loss(x, target, k=4.2255, lam=1.6477, p=1.019)
    np.testing.assert_allclose(single, double, rtol=3e-6)  # a position is raised to the power 53


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_an_example_without_weight_costs_nothing_even_if_it_is_infinite(reduction):
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
