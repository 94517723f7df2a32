"""The router by thresholds: that of expert choice on the batch they are of, and of single tokens on any other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.vmoe.routers import HardExpertChoice, Logits, RelaxedExpertChoice, ThresholdExpertChoice

G, S, E, K, C = 3, 20, 5, 4, 6
RNG = np.random.default_rng(0)
LOGITS, OTHERS = RNG.normal(size=(2, G, S, E)).astype(np.float32)
TRAINED = {
    "hard": RelaxedExpertChoice(K, C, 0.0),
    "relaxed": RelaxedExpertChoice(K, C, 0.3),
    "p = 4/3, gates": RelaxedExpertChoice(K, C, 0.1, 4 / 3, "gates"),
}


def by_threshold(router, found_on, logits, capacity=C):
    thresholds = router.thresholds(Logits(found_on, found_on))
    return ThresholdExpertChoice(thresholds, capacity, router.score)(Logits(logits, logits))


@jax.jit
def routed(logits, others):
    """By router: itself; its thresholds on its own batch; in two larger ones, all of whose tokens fit; if many pass."""
    larger = [jnp.concatenate([logits, new], axis=1) for new in (others, 3 * others)]
    return {
        name: (
            router(Logits(logits, logits)),
            by_threshold(router, logits, logits),
            [by_threshold(router, logits, batch, 2 * S) for batch in larger],
            by_threshold(router, logits - 1, logits, K),
        )
        for name, router in TRAINED.items()
    } | {"k": HardExpertChoice(K, "logits")(Logits(logits, logits))}


@pytest.fixture(scope="module")
def found():
    return jax.tree.map(np.asarray, routed(LOGITS, OTHERS))


@pytest.mark.parametrize("name", TRAINED)
def test_on_the_batch_of_its_thresholds_it_is_expert_choice_to_the_bit(name, found):
    jax.tree.map(np.testing.assert_array_equal, found[name][1], found[name][0])
    if name == "hard":
        for field in ("token", "weight"):
            np.testing.assert_array_equal(getattr(found[name][1], field)[..., :K], getattr(found["k"], field))
        np.testing.assert_array_equal(found[name][1].combine, found["k"].combine)


@pytest.mark.parametrize("name", TRAINED)
def test_other_tokens_of_the_batch_change_nothing(name, found):
    alone, together = found[name][0], found[name][2]
    for batch in together:
        np.testing.assert_array_equal(batch.combine[:, :S], alone.combine)
    assert (together[0].selected != together[1].selected).any()


@pytest.mark.parametrize("name", ["hard", "relaxed"])
def test_a_buffer_has_the_tokens_of_largest_score_and_the_rest_is_dropped(name, found):
    many = found[name][3]
    assert (many.selected > K).any()
    np.testing.assert_array_equal(many.selected, (many.combine > 0).sum(axis=1))
    np.testing.assert_array_equal(many.token, np.argsort(-LOGITS, axis=1)[:, :K].swapaxes(1, 2))
    weights = np.take_along_axis(many.combine.swapaxes(1, 2), many.token, axis=2)
    np.testing.assert_array_equal(many.weight, weights)
    np.testing.assert_allclose(many.mass, many.combine.sum(axis=1), rtol=1e-6)
