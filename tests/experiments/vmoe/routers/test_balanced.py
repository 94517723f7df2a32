"""The balanced router: sums of rows and columns, and the plan where it can be told by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.vmoe.routers import BalancedExpertChoice, Logits, RelaxedExpertChoice

G, S, E, K = 2, 12, 6, 4
LOGITS = np.random.default_rng(0).normal(size=(G, S, E)).astype(np.float32)


@jax.jit
def plan_and_free(limit):
    """The balanced routing, and that without a limit."""
    logits = Logits(LOGITS, LOGITS)
    return BalancedExpertChoice(K, S, limit, 0.5)(logits), RelaxedExpertChoice(K, S, 0.5)(logits)


@pytest.mark.parametrize("limit", [2.0, 2.5])
def test_every_expert_has_k_tokens_and_no_token_more_experts_than_its_limit(limit):
    routed, free = jax.tree.map(np.asarray, plan_and_free(np.float32(limit)))
    mask = routed.combine / routed.gates
    np.testing.assert_allclose(mask.sum(axis=1), np.full((G, E), K), atol=2e-3)
    assert mask.sum(axis=2).max() < limit + 2e-3
    if limit == E * K / S:  # no room: every token has as many
        np.testing.assert_allclose(mask.sum(axis=2), np.full((G, S), limit), atol=2e-2)
    assert mask.min() >= 0
    assert mask.max() <= 1 + 1e-6
    assert (free.combine / free.gates).sum(axis=2).max() > limit + 0.5
    in_slots = np.take_along_axis(mask.swapaxes(1, 2), routed.token, axis=-1)
    assert np.diff(in_slots).max() < 1e-6  # those of largest mask first


def test_a_contested_token_goes_to_the_expert_that_gains_more():
    # Both experts want token 0; expert 1 loses 3 without it, expert 0 only 1.
    logits = jnp.array([[[3.0, 4.0], [2.0, 1.0], [0.0, 0.5]]])
    routed = jax.jit(BalancedExpertChoice(1, 1, 1, 0.1))(Logits(logits, logits))
    np.testing.assert_array_equal(routed.token, [[[1], [0]]])
    np.testing.assert_allclose(routed.combine[0] / routed.gates[0], [[0, 1], [1, 0], [0, 0]], atol=1e-3)


def test_the_gradient_goes_through_the_plan():
    """In a token that an expert takes in part, it tells it from one that is taken whole."""
    router = BalancedExpertChoice(K, S, 2, 0.5)
    cotangent = np.random.default_rng(1).normal(size=(G, S, E)).astype(np.float32)

    def outcome(values):
        routed = router(Logits(values, values))
        return (cotangent * routed.combine / routed.gates).sum()

    step = 1e-2 * np.random.default_rng(2).normal(size=LOGITS.shape).astype(np.float32)
    value_and_grad = jax.jit(jax.value_and_grad(outcome))
    _, gradient = value_and_grad(jnp.asarray(LOGITS))
    (before, _), (after, _) = value_and_grad(jnp.asarray(LOGITS - step)), value_and_grad(jnp.asarray(LOGITS + step))
    slope = float((np.asarray(gradient) * step).sum())
    assert abs(slope) > 1e-3
    np.testing.assert_allclose((after - before) / 2, slope, rtol=0.1)
