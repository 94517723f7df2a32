"""Losses of others against their definitions, with sets and sorts written out in NumPy."""

import itertools

import jax
import numpy as np
import pytest

from experiments.vision.losses import smooth_svm, sorted_cross_entropy, truncated_entropy

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(6, 7)) * np.array([0.1, 0.3, 1.0, 1.0, 3.0, 10.0])[:, None]
LABELS = np.array([0, 6, 3, 1, 5, 2])
TEMPERATURE = 0.7


def others(x, y):
    return sorted(np.delete(x, y), reverse=True)


def truncated(x, y, k):
    return np.log(1 + sum(np.exp(other - x[y]) for other in others(x, y)[k - 1 :]))


def svm(x, y, k):
    sets = [(set(chosen), np.mean(x[list(chosen)])) for chosen in itertools.combinations(range(7), k)]
    whole = sum(np.exp(((y not in chosen) + mean) / TEMPERATURE) for chosen, mean in sets)
    with_label = sum(np.exp(mean / TEMPERATURE) for chosen, mean in sets if y in chosen)
    return TEMPERATURE * (np.log(whole) - np.log(with_label))


def petersen(x, y, k):
    rows = np.exp(-np.abs(np.sort(x)[::-1][:, None] - x) / TEMPERATURE)
    ranks = (rows / rows.sum(axis=1, keepdims=True))[:, y]
    probabilities = [np.exp(x[y]) / np.exp(x).sum(), *(min(1.0, ranks[:m].sum()) for m in range(2, k + 1))]
    return -np.log(0.5 * probabilities[0] + 0.5 * probabilities[-1])


LOSSES = {
    "truncated": (truncated, lambda x, k: truncated_entropy(x, LABELS, k)),
    "svm": (svm, lambda x, k: smooth_svm(x, LABELS, k, TEMPERATURE)),
    "petersen": (petersen, lambda x, k: sorted_cross_entropy(x, LABELS, k, TEMPERATURE)),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients_match_numpy(name):
    definition, loss = LOSSES[name]
    change = 1e-6 * RNG.normal(size=LOGITS.shape)
    by_k = jax.jit(lambda x: {k: (loss(x, k), jax.grad(lambda x, k=k: loss(x, k).sum())(x)) for k in (1, 4)})
    for k, (found, gradient) in by_k(LOGITS).items():
        wanted = [definition(x, y, k) for x, y in zip(LOGITS, LABELS, strict=True)]
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12, err_msg=str(k))
        ahead, behind = (
            [definition(x + move, y, k) for x, move, y in zip(LOGITS, sign * change, LABELS, strict=True)]
            for sign in (1, -1)
        )
        np.testing.assert_allclose(
            (gradient * change).sum(axis=1), np.subtract(ahead, behind) / 2, rtol=1e-4, atol=1e-12
        )
        assert np.abs(gradient).max() > 0.1


@pytest.mark.parametrize("name", LOSSES)
def test_extreme_logits_keep_losses_finite(name):
    _, loss = LOSSES[name]
    far = np.float32(LOGITS * 30)
    assert np.ptp(far) > 800
    values_and_gradient = jax.jit(lambda x: (loss(x, 3), jax.grad(lambda x: loss(x, 3).sum())(x)))
    for logits in (far, far - 5000, np.where(np.arange(7) == 4, -1e4, LOGITS).astype(np.float32)):
        values, gradient = values_and_gradient(logits)
        assert np.isfinite(values).all()
        assert np.isfinite(gradient).all()
        assert (values >= -1e-6).all()
        np.testing.assert_allclose(gradient.sum(axis=1), 0, atol=1e-3)  # indifferent to a common shift
