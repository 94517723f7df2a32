"""A mask is one entry, which the method finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments.core.errors import UsageError
from experiments.mnist_pruning.experiment import RECIPE
from experiments.mnist_pruning.methods import METHODS, masks
from experiments.mnist_pruning.methods.imle import imle_topk_mask
from experiments.mnist_pruning.methods.masks import MASKS, RelaxedMask
from tests.experiments.support import small_config


def _cauchy(x, k, *, lam):
    """As far above the (k + 1)-th largest as an arctangent has it."""
    return 0.5 + jnp.arctan((x - jnp.sort(x)[-k - 1]) / lam) / jnp.pi


def test_masks_move_unselected_weights():
    """Calls every mask with its strength, and compares one with the method that is the same."""
    x, pull, key = jnp.linspace(0.1, 1.0, 12), jnp.arange(12.0), jax.random.key(0)
    for name in MASKS:
        made = jax.eval_shape(lambda x, name=name: masks.mask_of(name, 1e-3, 4)(x, 3, key), x)
        assert made.shape == (12,), name

    def forward_and_pull(x, method, **fields):
        config = small_config(method, density=0.25, **fields)
        weights, pull_back = jax.vjp(lambda w: METHODS[method].make(config, 1).weights(w, {}, 0, key), x)
        return weights, pull_back(pull)[0]

    @jax.jit
    def by_two_names(x):
        by_mask = forward_and_pull(x, "mask_straight_through", mask__name="entropic_ot", mask__strength=0.5)
        return by_mask, forward_and_pull(x, "ot_straight_through", ot__epsilon=0.5)

    (weights, found), (others, expected) = by_two_names(x)
    np.testing.assert_array_equal(weights, jnp.where(x >= x[-3], x, 0))
    np.testing.assert_array_equal(weights, others)
    assert np.abs(found[:-3]).max() > 0.01
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_mask_is_one_entry(monkeypatch):
    monkeypatch.setitem(MASKS, "cauchy", RelaxedMask(_cauchy))
    with pytest.raises(UsageError, match=r"^config\.mask\.name='magic' .* one of .*, neuralsort, .*, cauchy$"):
        RECIPE.validate(small_config("mask_straight_through", mask__name="magic"))
    w = np.linspace(-1.0, 0.9, 20, dtype=np.float32)
    config = small_config(method="mask_straight_through", mask__name="cauchy", mask__strength=0.25)
    RECIPE.validate(config)
    weights = METHODS["mask_straight_through"].make(config, 1).weights
    found = jax.grad(lambda w: weights(w, {}, jnp.float32(0), jax.random.key(0)).sum())
    wanted = jax.grad(lambda w: (w * _cauchy(jnp.abs(w), 2, lam=0.25)).sum())
    pull, expected = jax.jit(lambda w: (found(w), wanted(w)))(w)
    np.testing.assert_allclose(pull, expected, rtol=1e-5)


def test_imle_is_a_mean_difference():
    """For two entries the probability that the first is the larger is known, here and after a step along -g."""
    x, pull, lam, samples = np.float32([0.3, -0.2]), np.float32([0.9, -0.4]), 0.7, 40_000

    @jax.jit
    def mask_and_pulled(x, pull):
        mask, pull_back = jax.vjp(lambda x: imle_topk_mask(x, 1, lam, jax.random.key(0), samples), x)
        return mask, pull_back(pull)[0], pull_back(jnp.zeros(2))[0]

    mask, pulled, of_nothing = mask_and_pulled(x, pull)
    step = lam / np.sqrt(np.mean(np.square(pull)))
    before, after = (stats.norm.cdf((0.5 - moved) / (lam * 2**0.5)) for moved in (0.0, step * 1.3))
    np.testing.assert_allclose(mask, [before, 1 - before], atol=0.01)
    slope = (before - after) / step
    np.testing.assert_allclose(pulled, [slope, -slope], atol=0.01)
    np.testing.assert_array_equal(of_nothing, [0, 0])
