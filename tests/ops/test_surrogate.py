"""The surrogate against its definition, both maxima by the oracle, and against what it must be in known cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import topk_surrogate_loss
from tests.ops import oracles

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(8, 6)) * np.array([0.1, 0.3, 1, 1, 1, 3, 3, 10])[:, None]
LABELS = np.array([0, 5, 2, 1, 4, 3, 0, 2])
LAM, K = 0.5, 3


def worth(x, k, p):
    """`max <x, y> - LAM / p |y|^p` over the polytope."""
    y = oracles.pooled(x, k, LAM, p)
    return x @ y - LAM / p * np.sum(y**p)


def loss(x, label, k, p=2.0):
    """The gain of a free selection over one with the entry of the label at 1."""
    return worth(x, k, p) - (x[label] - LAM / p + worth(np.delete(x, label), k - 1, p))


def slope(x, label, k):
    """The gradient of the loss in ``x``: the one selection minus the other."""
    return oracles.pooled(x, k, LAM) - np.insert(oracles.pooled(np.delete(x, label), k - 1, LAM), label, 1)


@pytest.mark.usefixtures("x64")
def test_loss_is_difference_of_two_maxima():
    p = 4 / 3
    wanted = [loss(x, label, K, p) for x, label in zip(LOGITS, LABELS, strict=True)]
    lams = np.full(8, LAM)
    found = oracles.check_derivatives(
        lambda x, lam: topk_surrogate_loss(x, LABELS, K, lam=lam, p=p), (LOGITS, lams), 1e-5
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
    assert sum(np.array(wanted) > 0.1) > 3


@pytest.mark.usefixtures("x64")
def test_known_cases():
    # k = 1: the sparsemax loss; k = 6: all are selected, so there is nothing to lose.
    ks, lams = np.repeat([1.0, 6.0, K, K], 8), np.repeat([LAM, LAM, 0.0, LAM], 8)
    x, labels = np.tile(LOGITS, (4, 1)), np.tile(LABELS, 4)
    first, whole, hard, several = topk_surrogate_loss(x, labels, ks, lam=lams).reshape(4, 8)
    y, targets = oracles.by_rows(oracles.pooled, LOGITS, 1, LAM), np.eye(6)[LABELS]
    sparsemax = (LOGITS * (y - targets)).sum(-1) + LAM / 2 * (1 - (y**2).sum(-1))
    np.testing.assert_allclose(first, sparsemax, atol=1e-12)
    np.testing.assert_allclose(whole, 0, atol=1e-12)
    others = np.sort(np.where(np.eye(6)[LABELS] == 1, -np.inf, LOGITS))[:, ::-1]
    hinge = np.maximum(0, others[:, K - 1] - LOGITS[np.arange(8), LABELS])
    np.testing.assert_allclose(hard, hinge, atol=1e-12)
    # 0 just where the label is selected in full.
    in_full = oracles.by_rows(oracles.pooled, LOGITS, K, LAM)[np.arange(8), LABELS] == 1
    np.testing.assert_array_equal(several < 1e-12, in_full)
    assert 0 < in_full.sum() < 8


def test_absent_classes_and_large_logits():
    x, labels = LOGITS[:, :4].astype(np.float32), LABELS % 4
    more = np.concatenate([x, np.full((8, 1), -np.inf), np.full((8, 1), 100)], axis=1)
    # A label that is absent, and one that there is not.
    odd = [[0, -np.inf, 1, *3 * [-np.inf]], [0, 1, 2, *3 * [-np.inf]]]
    # The value functions alone would lose these: the mask of 0.3 and 0 is (0.65, 0.35), which is worth 0.195 - 0.2725;
    # with the label alone it is 0 - 0.5.
    large = [[3e6, 2e6, 0.3, 0, -1e6, 0], [0.3, 2e6, 3e6, 0, -1e6, 0], [3e6, 2e6, 0.3, 0, -1e6, 0]]

    @jax.jit
    def with_gradient(x, labels, k, lam):
        where = jnp.arange(6)[None] < 5
        losses, pull = jax.vjp(lambda x: topk_surrogate_loss(x, labels, k, lam=lam, where=where), x)
        return losses, pull(jnp.ones_like(losses))[0]

    wanted = [loss(np.float64(row), label, 2) for row, label in zip(x, labels, strict=True)]
    rows, labels = np.float32([*more, *odd, *large]), np.array([*labels, 1, 7, 3, 3, 0])
    losses, gradient = with_gradient(rows, labels, np.float32(10 * [2] + 3 * [3]), np.float32(10 * [LAM] + 3 * [1]))
    np.testing.assert_allclose(losses[:8], wanted, rtol=1e-6, atol=1e-7)
    assert np.isfinite(gradient[:8]).all()
    assert (gradient[:8, 4:] == 0).all()
    assert losses[8] == np.inf
    assert np.isnan(losses[9])
    np.testing.assert_allclose(losses[10:12], 0.4225, rtol=1e-6)
    np.testing.assert_allclose(losses[12], 0, atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_weights_and_ignored_labels():
    examples, classes, ignored = np.linspace(0, 2, 8), np.linspace(0.5, 2, 6), LABELS == 2
    logits = np.where(ignored[:, None], np.nan, LOGITS)  # not even a NaN of theirs matters

    @jax.jit
    def everything(x, labels):
        def losses(x, reduction):
            options = {"example_weights": examples, "class_weights": classes, "ignore_index": 2}
            return topk_surrogate_loss(x, labels, K, lam=LAM, reduction=reduction, **options)

        return losses(x, "none"), *jax.value_and_grad(lambda x: losses(x, "mean"))(x)

    losses, average, gradient = everything(logits, LABELS)
    plain, slopes = (np.array([f(*row, K) for row in zip(LOGITS, LABELS, strict=True)]) for f in (loss, slope))
    weights = np.where(ignored, 0, examples * classes[LABELS])
    np.testing.assert_allclose(losses, weights * plain, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(average, weights @ plain / weights.sum(), rtol=1e-10)
    np.testing.assert_allclose(gradient, weights[:, None] / weights.sum() * slopes, atol=1e-12)
