"""The routers behind a plan, behind a straight-through mask and by thresholds: what they select and learn by."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.vmoe.routers import (
    BalancedExpertChoice,
    HardExpertChoice,
    Logits,
    RelaxedExpertChoice,
    StraightThroughExpertChoice,
    ThresholdExpertChoice,
)

G, S, E, K, C = 2, 12, 6, 4, 8
RNG = np.random.default_rng(0)
LOGITS, COTANGENT, CHANGE = RNG.normal(size=(3, G, S, E)).astype(np.float32)


def outcome_and_gradient(router, logits):
    """A weighted sum of the mask, with the routing, and its gradient in the logits."""

    def outcome(values):
        routed = router(Logits(values, values))
        return (COTANGENT * routed.combine / routed.gates).sum(), routed

    return jax.value_and_grad(outcome, has_aux=True)(logits)


@jax.jit
def balanced(logits, limit):
    return outcome_and_gradient(BalancedExpertChoice(K, S, limit, 0.5), logits)


def test_balanced_plan_keeps_both_limits():
    limit, step = np.float32(E * K / S), 1e-2 * CHANGE  # no room: every token has as many
    (_, routed), gradient = jax.tree.map(np.asarray, balanced(LOGITS, limit))
    mask = routed.combine / routed.gates
    np.testing.assert_allclose(mask.sum(axis=1), np.full((G, E), K), atol=2e-3)
    np.testing.assert_allclose(mask.sum(axis=2), np.full((G, S), limit), atol=2e-2)
    assert mask.sum(axis=2).max() < limit + 2e-3
    assert mask.min() >= 0
    assert mask.max() <= 1 + 1e-6
    in_slots = np.take_along_axis(mask.swapaxes(1, 2), routed.token, axis=-1)
    assert np.diff(in_slots).max() < 1e-6  # those of largest mask first
    slope = float((gradient * step).sum())
    assert abs(slope) > 1e-3
    ((before, _), _), ((after, _), _) = balanced(LOGITS - step, limit), balanced(LOGITS + step, limit)
    np.testing.assert_allclose((after - before) / 2, slope, rtol=0.1)


def test_hard_forward_relaxed_backward():
    routers = {
        "hard": HardExpertChoice(K, "logits"),
        "relaxed": RelaxedExpertChoice(K, C, 0.7),
        "straight_through": StraightThroughExpertChoice(K, C, 0.7),
    }
    run = jax.jit(lambda values: {name: outcome_and_gradient(router, values) for name, router in routers.items()})
    made = jax.tree.map(np.asarray, run(jnp.asarray(LOGITS)))
    (_, hard), of_hard = made["hard"]
    (_, found), gradient = made["straight_through"]
    np.testing.assert_array_equal(found.token[..., :K], hard.token)
    np.testing.assert_array_equal(found.weight[..., :K], hard.weight)
    np.testing.assert_array_equal(found.weight[..., K:], 0)  # exactly, though the relaxed mask is not
    for name in ("combine", "selected", "mass", "gates"):
        np.testing.assert_allclose(getattr(found, name), getattr(hard, name), rtol=1e-6)
    np.testing.assert_allclose(gradient, made["relaxed"][1], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(of_hard, 0, atol=1e-6)
    assert np.abs(gradient[hard.combine == 0]).max() > 0.1  # what is not selected learns whether it should be


# By thresholds ------------------------------------------------------------------------------------------------------

TRAINED = {
    "hard": RelaxedExpertChoice(K, C, 0.0),
    "p = 4/3, gates": RelaxedExpertChoice(K, C, 0.1, 4 / 3, "gates"),
}


def by_threshold(router, found_on, logits, capacity=C):
    thresholds = router.thresholds(Logits(found_on, found_on))
    return ThresholdExpertChoice(thresholds, capacity, router.score)(Logits(logits, logits))


@jax.jit
def routed(logits):
    """By router: itself, and its thresholds on its own batch; and thresholds that many pass."""
    return {
        name: (router(Logits(logits, logits)), by_threshold(router, logits, logits)) for name, router in TRAINED.items()
    } | {
        "k": HardExpertChoice(K, "logits")(Logits(logits, logits)),
        "many": by_threshold(TRAINED["hard"], logits - 1, logits, K),
    }


@pytest.fixture(scope="module")
def found():
    return jax.tree.map(np.asarray, routed(LOGITS))


@pytest.mark.parametrize("name", TRAINED)
def test_own_thresholds_give_expert_choice(name, found):
    jax.tree.map(np.testing.assert_array_equal, found[name][1], found[name][0])
    if name == "hard":
        for field in ("token", "weight"):
            np.testing.assert_array_equal(getattr(found[name][1], field)[..., :K], getattr(found["k"], field))
        np.testing.assert_array_equal(found[name][1].combine, found["k"].combine)


def test_buffer_keeps_the_largest_scores(found):
    many = found["many"]
    assert (many.selected > K).any()
    np.testing.assert_array_equal(many.selected, (many.combine > 0).sum(axis=1))
    np.testing.assert_array_equal(many.token, np.argsort(-LOGITS, axis=1)[:, :K].swapaxes(1, 2))
    weights = np.take_along_axis(many.combine.swapaxes(1, 2), many.token, axis=2)
    np.testing.assert_array_equal(many.weight, weights)
    np.testing.assert_allclose(many.mass, many.combine.sum(axis=1), rtol=1e-6)
