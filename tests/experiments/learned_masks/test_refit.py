"""Statistics that are estimated again, and a head that is trained again."""

import jax
import numpy as np
import pytest

from configs.learned_masks import get_config
from experiments.learned_masks import refit
from experiments.vision.efficientnet import LAST_BLOCK, EfficientNetLite0
from tests.experiments.vision.test_efficientnet import random_variables

RNG = np.random.default_rng(0)
MODEL = EfficientNetLite0(3, first_block=LAST_BLOCK)
MAPS = RNG.normal(size=(32, 2, 2, 192)).astype(np.float32)


@pytest.fixture(scope="module")
def whole():
    """The variables of the last block, and a head for three classes."""
    of_all, names = random_variables(LAST_BLOCK), (f"block_{LAST_BLOCK}", "head")
    head = {"kernel": RNG.normal(size=(1280, 3)).astype(np.float32), "bias": np.zeros(3, np.float32)}
    params = {name: of_all["params"][name] for name in names} | {"classifier": head}
    return {"params": params, "batch_stats": {name: of_all["batch_stats"][name] for name in names}}


@pytest.fixture(scope="module")
def masked(whole):
    """The same with a quarter of every kernel and the second channel of the head."""
    kept = jax.tree.map(lambda leaf: RNG.random(leaf.shape) < (0.25 if leaf.ndim == 4 else 1.0), whole["params"])
    params = jax.tree.map(np.multiply, whole["params"], kept)
    params["head"]["kernel"][..., 1] = 0.0
    return whole | {"params": params}


def moments_with(variables, moments):
    statistics = refit.reestimated(MODEL, variables, MAPS, moments)
    return refit.moments_behind_norms(MODEL, variables | {"batch_stats": statistics}, MAPS)


def test_own_statistics_make_moments_0_and_1(masked):
    found = moments_with(masked, {})
    assert len(found) == 4
    for mean, ratio in found.values():
        np.testing.assert_allclose(mean, np.zeros_like(mean), atol=1e-4)
        np.testing.assert_allclose(ratio, np.ones_like(ratio), rtol=1e-3)


def test_statistics_restore_unmasked_moments(whole, masked):
    expected, before = (refit.moments_behind_norms(MODEL, variables, MAPS) for variables in (whole, masked))
    found = moments_with(masked, expected)
    for name, (mean, _) in expected.items():
        assert np.abs(before[name][0] - mean).max() > 0.1
        np.testing.assert_allclose(found[name][0], mean, atol=1e-3)
    # A channel that has lost all its weights keeps its mean alone.
    np.testing.assert_allclose(found["head/norm"][1][2:], expected["head/norm"][1][2:], rtol=1e-3)


def test_unmasked_network_keeps_statistics(whole):
    found = refit.reestimated(MODEL, whole, MAPS, refit.moments_behind_norms(MODEL, whole, MAPS))
    for new, old in zip(*map(jax.tree.leaves, (found, whole["batch_stats"])), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-3, atol=1e-3)


def test_trained_head_follows_the_config():
    features = RNG.normal(size=(90, 8)).astype(np.float32)
    labels = features[:, :3].argmax(axis=1).astype(np.int32)
    config = get_config("method=dense")
    config.update(steps=1, batch_size=90, optimizer={"schedule": "constant"})
    head = refit.trained_head(features, labels, 3, config)
    # The first step of Adam is the rate against the sign of the gradient.
    errors = 1 / 3 - np.eye(3)[labels]
    np.testing.assert_allclose(head["kernel"], -1e-3 * np.sign(features.T @ errors), rtol=1e-3)
    config.update(steps=200, batch_size=30, optimizer={"learning_rate": 0.1})
    head = refit.trained_head(features, labels, 3, config)
    logits = features @ np.asarray(head["kernel"]) + np.asarray(head["bias"])
    assert np.mean(logits.argmax(axis=1) == labels) > 0.95
