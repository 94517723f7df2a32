"""What can be proved of the paper's loss `f_R(x, 1_k) - <x, t>`, and decides what is to be seen in the experiment."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import relaxed_topk_value, topk_fenchel_young_loss, topk_mask, topk_surrogate_loss

RNG = np.random.default_rng(0)
N, K, P, LAM = 6, 3, 4 / 3, 0.5
pytestmark = pytest.mark.usefixtures("x64")


def paper(x, labels, lam=LAM, target="one_hot"):
    """`f_R(x, 1_k) - <x, t>`, but for a constant, of rows."""
    return topk_fenchel_young_loss(x, labels, K, lam=lam, p=P, target=target)


def test_the_loss_is_bounded_below_if_and_only_if_the_target_lies_in_the_polytope():
    """If: `f_R` is the largest of `<x, y> - R(y)`, among them that of t. Only if: a direction for each face missed."""
    inside = np.asarray(topk_mask(RNG.normal(size=(300, N)), K, lam=RNG.uniform(0.1, 5, 300), p=P))
    x = RNG.normal(size=(300, N)) * np.geomspace(0.01, 1e4, 300)[:, None]
    far = np.geomspace(1e2, 1e6, 5)[:, None]
    one, first = np.ones(N), np.eye(N)[0]
    outside = {
        "too little in all": (np.eye(N)[2], -one),
        "too much in all": (np.full(N, 0.6), one),
        "more than all of a class": ((K - 1.2) / (N - 1) * (one - first) + 1.2 * first, first),
        "less than nothing of a class": ((K + 0.2) / (N - 1) * (one - first) - 0.2 * first, -first),
    }
    rows = np.concatenate([x, *(far * direction for _, direction in outside.values())])
    targets = np.concatenate([inside, *(np.tile(t, (5, 1)) for t, _ in outside.values())])
    losses = np.asarray(relaxed_topk_value(rows, K, lam=LAM, p=P)) - (rows * targets).sum(axis=1)
    assert (losses[:300] >= -LAM / P * (inside**P).sum(axis=1) - 1e-8).all()
    for case, values in zip(outside, losses[300:].reshape(4, 5), strict=True):
        assert (np.diff(values) < 0).all(), case
        assert values[-1] < -1e5, case


def test_with_a_one_hot_target_a_common_shift_changes_the_loss_alone():
    x, labels = RNG.normal(size=(4, N)), np.array([0, 1, 5, 2])
    shifts = np.array([0.0, -3.0, 100.0])
    rows = (x + shifts[:, None, None]).reshape(-1, N)
    losses, pull_back = jax.vjp(lambda rows: paper(rows, np.tile(labels, 3)), rows)
    (gradients,) = pull_back(jnp.ones(12))
    losses, gradients = np.asarray(losses).reshape(3, 4), np.asarray(gradients).reshape(3, 4, N)
    np.testing.assert_allclose(losses, losses[0] + (K - 1) * shifts[:, None], atol=1e-9)
    np.testing.assert_allclose(gradients, np.tile(gradients[0], (3, 1, 1)), atol=1e-9)
    # It is down there that every step goes: each takes all logits with it.
    np.testing.assert_allclose(gradients.sum(axis=-1), K - 1, atol=1e-9)


FEATURES, LABELS = RNG.normal(size=(40, 5)), RNG.integers(N, size=40)


def trained(loss, steps=30):
    """A function of rate, lam and the share of the drift left in: the logits after SGD from zeros without clipping."""

    def logits(rate, lam, drift):
        def step(head, _):
            gradient = jax.grad(lambda head: loss(FEATURES @ head, LABELS, lam).mean())(head)
            # What all classes have in common.
            gradient = gradient - (1 - drift) * gradient.mean(axis=1, keepdims=True)
            return head - rate * gradient, None

        return FEATURES @ jax.lax.scan(step, jnp.zeros((5, N)), length=steps)[0]

    return logits


def surrogate(x, labels, lam):
    return topk_surrogate_loss(x, labels, K, lam=lam)


@pytest.mark.parametrize("loss", [paper, surrogate])
def test_of_a_head_from_zeros_on_frozen_features_rate_over_lam_decides_and_drift_does_nothing(loss):
    """`y(c x; c lam) = y(x; lam)`: with rate and lam both times c the head is times c. Neither moves a rank."""
    rates, lams, drift = np.array([0.7, 7.0, 7.0, 0.7]), np.array([0.3, 3.0, 0.3, 0.3]), np.array([1.0, 1.0, 1.0, 0.0])
    once, tenfold, other, centred = np.asarray(jax.jit(jax.vmap(trained(loss)))(rates, lams, drift))
    np.testing.assert_allclose(tenfold, 10 * once, rtol=1e-9, atol=1e-9)
    order = np.argsort(once, axis=1)
    np.testing.assert_array_equal(np.argsort(tenfold, axis=1), order)
    assert (np.argsort(other, axis=1) != order).any()
    np.testing.assert_allclose(once - once.mean(axis=1, keepdims=True), centred, atol=1e-9)
    # A proper surrogate has no drift to begin with.
    assert (np.abs(once - centred).max() > 1) == (loss is paper)


def test_a_body_that_is_trained_too_is_torn_by_the_drift():
    """What all logits have in common reaches the body by the head, grows there with every step, and drowns the rest."""
    rng, labels = np.random.default_rng(0), np.tile(np.arange(N), 20)
    inputs = rng.normal(size=(N, 8))[labels] + 0.5 * rng.normal(size=(120, 8))
    body = rng.normal(size=(8, 16)) / np.sqrt(8)

    def logits(params):
        return jnp.maximum(inputs @ params["body"], 0) @ params["head"]

    @partial(jax.jit, static_argnums=(0, 1))
    def trained(target, body_rate):
        rates = {"body": body_rate, "head": 0.05}

        def step(params, _):
            gradient = jax.grad(lambda params: paper(logits(params), labels, target=target).mean())(params)
            moved = jax.tree.map(lambda leaf, rate, slope: leaf - rate * slope, params, rates, gradient)
            return moved, jnp.linalg.norm(gradient["body"])

        params, norms = jax.lax.scan(step, {"body": body, "head": jnp.zeros((16, N))}, length=100)
        return norms[-1] / norms[1], 100 * (logits(params).argmax(axis=1) == labels).mean()

    growth, accuracy = trained("one_hot", 0.05)
    proper_growth, proper_accuracy = trained("smooth", 0.05)
    _, frozen_accuracy = trained("one_hot", 0.0)
    assert growth > 100 > 10 > proper_growth
    assert accuracy < 50 < 70 < min(proper_accuracy, frozen_accuracy)


def test_at_the_minimum_the_mask_is_the_posterior_smoothed_and_ranks_as_it():
    """So no k is ranked otherwise than by cross-entropy.

    Over labels of probabilities eta the expected target is `eta + (k - 1) / (n - 1) (1 - eta)`, increasing in eta.
    """
    posterior = np.array([0.4, 0.25, 0.15, 0.1, 0.07, 0.03])

    def expected(x):
        return posterior @ paper(jnp.tile(x, (N, 1)), np.arange(N), target="smooth")

    def step(x, _):
        return x - 0.2 * jax.grad(expected)(x), None

    x = jax.jit(lambda x: jax.lax.scan(step, x, length=2000)[0])(jnp.zeros(N))
    smoothed = posterior + (K - 1) / (N - 1) * (1 - posterior)
    np.testing.assert_allclose(topk_mask(x, K, lam=LAM, p=P), smoothed, atol=1e-6)
    np.testing.assert_array_equal(np.argsort(-np.asarray(x)), np.arange(N))
