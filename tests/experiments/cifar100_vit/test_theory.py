"""What can be proved of the paper's loss `f_R(x, 1_k) - <x, t>`, and decides what is to be seen in the experiment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import topk_fenchel_young_loss, topk_mask

RNG = np.random.default_rng(0)
N, K, P, LAM = 6, 3, 4 / 3, 0.5
pytestmark = pytest.mark.usefixtures("x64")


def paper(x, labels, lam=LAM, target="one_hot"):
    """`f_R(x, 1_k) - <x, t>`, but for a constant, of rows."""
    return topk_fenchel_young_loss(x, labels, K, lam=lam, p=P, target=target)


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


def test_of_a_head_from_zeros_on_frozen_features_rate_over_lam_decides_and_drift_does_nothing():
    """`y(c x; c lam) = y(x; lam)`: with rate and lam both times c the head is times c. Neither moves a rank."""
    rates, lams, drift = np.array([0.7, 7.0, 7.0, 0.7]), np.array([0.3, 3.0, 0.3, 0.3]), np.array([1.0, 1.0, 1.0, 0.0])
    once, tenfold, other, centred = np.asarray(jax.jit(jax.vmap(trained(paper)))(rates, lams, drift))
    np.testing.assert_allclose(tenfold, 10 * once, rtol=1e-9, atol=1e-9)
    order = np.argsort(once, axis=1)
    np.testing.assert_array_equal(np.argsort(tenfold, axis=1), order)
    assert (np.argsort(other, axis=1) != order).any()
    np.testing.assert_allclose(once - once.mean(axis=1, keepdims=True), centred, atol=1e-9)
    assert np.abs(once - centred).max() > 1


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
