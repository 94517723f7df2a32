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
    return relaxed_topk_value(x, k, lam=lam, p=p) - (x * t).sum(-1)


@PS
@pytest.mark.parametrize("targets", [LABELS, MULTI_HOT])
def test_value_and_gradient(x64, p, targets):
    t = onehot(targets) if targets.ndim == 1 else targets
    for target in ("one_hot", "smooth"):

        def loss(x, target=target):
            losses = topk_fenchel_young_loss(x, targets, K, lam=LAM, p=p, target=target)
            return losses.sum(), losses

        gradient, losses = jax.grad(loss, has_aux=True)(X)
        moved = t if target == "one_hot" else smoothed(t, K)
        expected = cancelling(X, moved, K, LAM, p) + LAM / p * (moved**p).sum(-1)
        np.testing.assert_allclose(losses, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(gradient, topk_mask(X, K, lam=LAM, p=p) - moved, rtol=0, atol=1e-14)


@PS
def test_derivatives_in_k_lam_and_targets(x64, p):
    k, lam = np.array([1.3, 2.2, 3.4, 4.6, 1.2, 3.1, 7.7, 5.2]), np.where(LAM == 0, 0.7, LAM)
    t = 0.1 + 0.8 * MULTI_HOT
    tangents = oracles.samples((8,), 5), oracles.samples((8,), 6), oracles.samples((8, 9), 7)
    for target in ("one_hot", "smooth"):

        @jax.jit
        def loss(k, lam, t, target=target):
            return topk_fenchel_young_loss(X, t, k, lam=lam, p=p, target=target).sum()

        def at(step, loss=loss):
            return loss(k + step * tangents[0], lam + step * lam * tangents[1], t + step * tangents[2])

        gradients = jax.grad(loss, (0, 1, 2))(k, lam, t)
        pushed = sum(
            np.vdot(g, v) for g, v in zip(gradients, (tangents[0], lam * tangents[1], tangents[2]), strict=True)
        )
        assert abs(pushed) > 1e-2
        np.testing.assert_allclose(pushed, (at(1e-6) - at(-1e-6)) / 2e-6, rtol=1e-6)


@PS
def test_second_derivative_is_that_of_the_mask(x64, p):
    hessian = jax.hessian(lambda x: topk_fenchel_young_loss(x, 2, 3, lam=1.0, p=p))(X[0])
    expected = jax.jacobian(lambda x: topk_mask(x, 3, lam=1.0, p=p))(X[0])
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(hessian, expected, atol=1e-12)


@PS
def test_smooth_is_never_negative_and_0_at_the_mask(p):
    x = oracles.samples((500, 9), 8, np.float32) * np.geomspace(1e-3, 1e3, 500, dtype=np.float32)[:, None]
    k = np.linspace(0, 9, 500, dtype=np.float32)
    labels = np.arange(500) % 9
    losses = topk_fenchel_young_loss(x, labels, k, lam=0.5, p=p, target="smooth")
    assert losses.min() >= 0
    assert losses.max() > 1
    own = topk_mask(x, k, lam=0.5, p=p)
    # A target that is off by a rounding costs its distance to the threshold.
    zeros = topk_fenchel_young_loss(x, own, k, lam=0.5, p=p, target="smooth")
    assert np.all(zeros >= 0)
    assert np.all(zeros <= 5e-6 * (1 + np.abs(x).max(-1)))


@PS
def test_one_hot_is_never_negative_and_0_at_the_target_where_as_many_are_positive_as_selected(p):
    x = oracles.samples((500, 9), 8, np.float32) * np.geomspace(1e-3, 1e3, 500, dtype=np.float32)[:, None]
    t = np.eye(9, dtype=np.float32)[np.arange(500) % 9]
    pairs = t + np.roll(t, 1, axis=1)
    for targets, k in ((np.arange(500) % 9, 1), (t, 1), (pairs, 2)):
        losses = topk_fenchel_young_loss(x, targets, k, lam=0.5, p=p)
        assert losses.min() >= 0
        assert losses.max() > 1
    # Where the positives lead by lam the mask is the target.
    good = np.where(pairs == 1, x + np.abs(x).max(-1, keepdims=True) + 1, np.minimum(x, 0))
    np.testing.assert_allclose(topk_fenchel_young_loss(good, pairs, 2, lam=0.5, p=p), np.zeros(500), atol=1e-7)


def test_k_1_is_the_sparsemax_loss(x64):
    # Martins and Astudillo (2016), equation 16, over the support of sparsemax.
    for x, label in zip(X, LABELS, strict=True):
        s = np.sort(x)[::-1]
        size = np.sum(1 + np.arange(1, 10) * s > np.cumsum(s))
        tau = (s[:size].sum() - 1) / size
        expected = -x[label] + 0.5 * np.sum(s[:size] ** 2 - tau**2) + 0.5
        np.testing.assert_allclose(topk_fenchel_young_loss(x, label, 1, lam=1.0), expected, atol=1e-14)


@PS
def test_convex_along_random_chords(x64, p):
    a, b = oracles.samples((2, 400, 9), 9) * 3
    share = np.random.default_rng(0).random((400, 1))

    @jax.jit
    def loss(x):
        return topk_fenchel_young_loss(x, np.arange(400) % 9, 2.5, lam=0.7, p=p)

    slack = share[:, 0] * loss(a) + (1 - share[:, 0]) * loss(b) - loss(share * a + (1 - share) * b)
    assert slack.min() > -1e-12
    assert slack.max() > 0.1


def test_shifts_take_the_one_hot_loss_down_without_bound_and_leave_the_smooth_one():
    shifts = np.float32([[0], [-1e2], [-1e4]])
    x = np.round(X[:1].astype(np.float32), 2) + shifts
    losses = topk_fenchel_young_loss(x, np.zeros(3, int), 3, lam=0.5)
    np.testing.assert_allclose(losses - losses[0], 2 * shifts[:, 0], rtol=1e-3, atol=0.1)  # k - 1 = 2
    losses = topk_fenchel_young_loss(x, np.zeros(3, int), 3, lam=0.5, target="smooth")
    np.testing.assert_allclose(losses, np.full(3, losses[0]), atol=5e-3)
    losses = topk_fenchel_young_loss(x, np.zeros(3, int), 1, lam=0.5)
    np.testing.assert_allclose(losses, np.full(3, losses[0]), atol=5e-3)


@PS
def test_small_losses_do_not_cancel(x64, p):
    own = np.asarray(topk_mask(X, 3, lam=1.0, p=p))
    x = 1e3 + X + 1e-2 * oracles.samples(X.shape, 10)
    exact = np.asarray(topk_fenchel_young_loss(x, own, 3, lam=1.0, p=p, target="smooth"))
    single = topk_fenchel_young_loss(
        x.astype(np.float32), own.astype(np.float32), 3, lam=np.float32(1), p=p, target="smooth"
    )
    assert 1e-7 < exact.min() < exact.max() < 1e-2
    # Near 1000 floats are 6e-5 apart: all that is left of the logits' digits is in the loss.
    np.testing.assert_allclose(single, exact, rtol=2e-2, atol=1e-7)


def test_minus_inf_and_where(x64):
    x = X.copy()
    x[:, 4] = -np.inf
    others = np.arange(9) != 4
    labels = np.where(LABELS > 4, LABELS - 1, LABELS)
    k = np.minimum(K, 8)
    for target in ("one_hot", "smooth"):
        loss, gradient = jax.value_and_grad(
            lambda x, target=target: topk_fenchel_young_loss(x, LABELS, K, lam=LAM, target=target).sum()
        )(x)
        masked = topk_fenchel_young_loss(X, LABELS, K, lam=LAM, target=target, where=others).sum()
        expected = topk_fenchel_young_loss(X[:, others], labels, k, lam=LAM, target=target).sum()
        np.testing.assert_allclose([loss, masked], expected, rtol=1e-12)
        assert np.isfinite(gradient).all()
        assert np.all(gradient[:, 4] == 0)
    assert np.all(topk_fenchel_young_loss(x, np.full(8, 4), K, lam=LAM) == np.inf)
    assert np.isfinite(topk_fenchel_young_loss(x, np.full(8, 4), K, lam=LAM, target="smooth")).all()
    nothing = topk_fenchel_young_loss(np.full((2, 9), -np.inf), np.array([1, 2]), 3, target="smooth")
    np.testing.assert_array_equal(nothing, [0, 0])


def both_losses(x, targets, k=2, **options):
    single = topk_fenchel_young_loss(x, targets, k, lam=0.5, **options)
    return single, topk_fenchel_young_mixture(x, targets, np.array([0.25, 0.5]), lam=0.5, **options)


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8])
def test_a_label_out_of_range_that_is_not_known_gives_nan(dtype):
    labels = LABELS.astype(dtype)
    labels[3] = 9
    labels[5] = -1 if np.issubdtype(dtype, np.signedinteger) else 200

    def total(x, labels):
        losses = both_losses(x, labels)
        return sum(map(jnp.sum, losses)), losses

    (_, losses), gradient = jax.jit(jax.value_and_grad(total, has_aux=True))(X.astype(np.float32), labels)
    wrong = np.isin(np.arange(8), (3, 5))
    for loss, expected in zip(losses, both_losses(X.astype(np.float32), LABELS), strict=True):
        np.testing.assert_array_equal(np.isnan(loss), wrong)
        np.testing.assert_allclose(loss[~wrong], expected[~wrong], rtol=1e-6)
    np.testing.assert_array_equal(np.isnan(gradient), np.broadcast_to(wrong[:, None], gradient.shape))


def test_labels_of_a_byte_are_told_from_those_256_further():
    x = oracles.samples((2, 600), 3, np.float32)
    wide = topk_fenchel_young_loss(x, np.array([7, 200]), 3)
    np.testing.assert_array_equal(topk_fenchel_young_loss(x, np.uint8([7, 200]), 3), wide)


@pytest.mark.parametrize("known", [True, False])
def test_what_is_ignored_has_neither_loss_nor_gradient_nor_weight(known):
    labels = np.where(np.arange(8) % 3 == 1, -100, LABELS)
    counted = labels != -100
    x = np.where(counted[:, None], X, np.nan).astype(np.float32)  # not even its NaN matters

    def losses(x, labels, reduction="none"):
        return both_losses(x, labels, ignore_index=-100, reduction=reduction)

    found = losses(x, labels) if known else jax.jit(losses)(x, labels)
    means = losses(x, labels, "mean") if known else jax.jit(lambda *a: losses(*a, "mean"))(x, labels)
    for loss, mean, expected in zip(found, means, both_losses(x[counted], labels[counted]), strict=True):
        assert np.all(loss[~counted] == 0)
        np.testing.assert_allclose(loss[counted], expected, rtol=1e-6)
        np.testing.assert_allclose(mean, np.mean(expected), rtol=1e-6)
    gradient = jax.grad(lambda x: sum(losses(x, labels, "mean")))(x)
    assert np.all(gradient[~counted] == 0)
    assert np.all(np.abs(gradient[counted]).max(-1) > 0)
    assert losses(x, np.full(8, -100), "mean") == (0, 0)


def test_weights_smoothing_and_reduction(x64):
    example, of_class = np.linspace(0, 2, 8), np.linspace(0.5, 2, 9)
    for plain, index in zip(both_losses(X, LABELS), (0, 1), strict=True):

        def loss(index=index, targets=LABELS, **options):
            return both_losses(X, targets, **options)[index]

        weighted = plain * example * of_class[LABELS]
        options = {"example_weights": example, "class_weights": of_class}
        np.testing.assert_allclose(loss(**options), weighted, rtol=1e-12)
        np.testing.assert_allclose(loss(reduction="sum", **options), weighted.sum(), rtol=1e-12)
        mean = weighted.sum() / np.sum(example * of_class[LABELS])  # as in torch.nn.CrossEntropyLoss
        np.testing.assert_allclose(loss(reduction="mean", **options), mean, rtol=1e-12)
        np.testing.assert_allclose(loss(reduction="mean"), plain.mean(), rtol=1e-12)
        smoothed_labels = 0.9 * onehot(LABELS) + 0.1 / 9
        np.testing.assert_allclose(loss(label_smoothing=0.1), loss(targets=smoothed_labels), rtol=1e-12)
        present = np.arange(9) != 4
        smoothed_labels = np.where(present, 0.9 * MULTI_HOT + 0.1 * MULTI_HOT[:, present].sum(1, keepdims=True) / 8, 0)
        options = {"where": present, "target": "smooth"}
        found = loss(targets=MULTI_HOT, label_smoothing=0.1, **options)
        np.testing.assert_allclose(found, loss(targets=np.clip(smoothed_labels, 0, 1), **options), rtol=1e-12)
    slope = jax.grad(lambda w: topk_fenchel_young_loss(X, LABELS, 2, example_weights=w, reduction="sum"))(np.zeros(8))
    np.testing.assert_allclose(slope, topk_fenchel_young_loss(X, LABELS, 2), rtol=1e-12)


def test_a_reduced_loss_has_the_dtype_of_the_logits():
    x = jnp.asarray(X, jnp.bfloat16)
    mean = topk_fenchel_young_loss(x, LABELS, 2, reduction="mean")
    assert mean.dtype == jnp.bfloat16
    expected = topk_fenchel_young_loss(x.astype(jnp.float32), LABELS, 2, reduction="mean")
    assert mean == expected.astype(jnp.bfloat16)
    assert topk_fenchel_young_loss(np.ones((2, 3), int), np.array([0, 1]), 2, reduction="sum").dtype == jnp.float32


@PS
def test_bfloat16(p):
    x = jnp.asarray(50 * X - 1000, jnp.bfloat16)
    loss, pull = jax.vjp(lambda x: topk_fenchel_young_loss(x, LABELS, 3, p=p, target="smooth"), x)
    expected = topk_fenchel_young_loss(x.astype(jnp.float32), LABELS, 3, p=p, target="smooth")
    assert loss.dtype == jnp.bfloat16
    np.testing.assert_allclose(loss.astype(jnp.float32), expected, rtol=1e-2)
    (gradient,) = pull(jnp.ones_like(loss))
    np.testing.assert_allclose(gradient.astype(jnp.float32).sum(-1), 0, atol=2e-2)


def test_mixture(x64):
    weights = np.array([0.5, 0.0, 0.3, 0.2])
    expected = sum(w * topk_fenchel_young_loss(X, LABELS, k + 1, lam=0.5, p=1.5) for k, w in enumerate(weights))
    mixture = topk_fenchel_young_mixture(X, LABELS, weights, lam=0.5, p=1.5)
    np.testing.assert_allclose(mixture, expected, rtol=1e-12)
    gradient = jax.grad(lambda x: topk_fenchel_young_mixture(x, MULTI_HOT, weights, target="smooth").sum())(X)
    expected = sum(w * (topk_mask(X, k + 1.0) - smoothed(MULTI_HOT, k + 1)) for k, w in enumerate(weights))
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
