"""The straight-through router: what it does is the hard router's, what it learns by is the relaxed one's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.vmoe.routers import HardExpertChoice, Logits, RelaxedExpertChoice, StraightThroughExpertChoice

G, S, E, K, C = 2, 14, 4, 3, 8
LAM = 0.7
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(G, S, E)).astype(np.float32)


@pytest.fixture(scope="module")
def routed():
    """By name what each router returns, and the gradient of a sum of its mask."""
    routers = {
        "hard": HardExpertChoice(K, "logits"),
        "relaxed": RelaxedExpertChoice(K, C, LAM),
        "straight_through": StraightThroughExpertChoice(K, C, LAM),
    }
    cotangent = RNG.normal(size=(G, S, E)).astype(np.float32)

    def outcome(values, router):
        routed = router(Logits(values, values))
        return (cotangent * routed.combine / routed.gates).sum(), routed  # the mask alone

    of_mask = jax.grad(outcome, has_aux=True)
    run = jax.jit(lambda values: {name: of_mask(values, router) for name, router in routers.items()})
    return jax.tree.map(np.asarray, run(jnp.asarray(LOGITS)))


def test_forward_it_is_the_hard_router(routed):
    (_, hard), (_, found) = routed["hard"], routed["straight_through"]
    np.testing.assert_array_equal(found.token[..., :K], hard.token)
    np.testing.assert_array_equal(found.weight[..., :K], hard.weight)
    np.testing.assert_array_equal(found.weight[..., K:], 0)  # exactly, though the relaxed mask is not
    for name in ("combine", "selected", "mass", "gates"):
        np.testing.assert_allclose(getattr(found, name), getattr(hard, name), rtol=1e-6)


def test_backward_the_mask_is_the_relaxed_one(routed):
    (of_hard, hard), (expected, _), (found, _) = (routed[name] for name in ("hard", "relaxed", "straight_through"))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(of_hard, 0, atol=1e-6)
    assert np.abs(found[hard.combine == 0]).max() > 0.1  # what is not selected learns whether it should be
