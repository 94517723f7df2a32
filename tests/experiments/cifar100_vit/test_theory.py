"""What can be proved of the paper's loss `f_R(x, 1_k) - <x, t>`, and decides what is to be seen in the experiment."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.cifar100_vit.losses import fine_tuning_loss
from ops import relaxed_topk_value, topk_fenchel_young_loss, topk_mask

RNG = np.random.default_rng(0)
N, K, P, LAM = 6, 3, 4 / 3, 0.5
pytestmark = pytest.mark.usefixtures("x64")


def paper(x, labels, lam=LAM, target="one_hot"):
    """`f_R(x, 1_k) - <x, t>`, but for a constant, of rows."""
    return topk_fenchel_young_loss(x, labels, K, lam=lam, p=P, target=target)


def test_loss_is_bounded_iff_t_in_polytope():
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


def test_shift_changes_loss_not_gradients():
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


@pytest.mark.parametrize("name", ["xent_temperature", "topk"])
def test_lam_acts_as_a_learning_rate(name):
    """For a head from zeros, lam at a rate r is 1 at r / lam, with clipping and momentum, too."""
    features, labels = RNG.normal(size=(20, 4)), RNG.integers(0, N, 20)

    def trained(rate, lam):
        loss = fine_tuning_loss(name, K, P, lam, "smooth")
        optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(rate, momentum=0.9))

        @jax.jit
        def step(head, state):
            gradient = jax.grad(lambda head: loss(features @ head, labels).mean())(head)
            updates, state = optimizer.update(gradient, state)
            return optax.apply_updates(head, updates), state

        head = np.zeros((4, N))
        state = jax.jit(optimizer.init)(head)
        for _ in range(5):
            head, state = step(head, state)
        return np.asarray(head) / lam

    np.testing.assert_allclose(trained(0.3, 0.1), trained(3.0, 1.0), atol=1e-12)
