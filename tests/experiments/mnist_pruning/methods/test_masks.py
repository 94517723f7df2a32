"""A mask is one entry, which the method finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.mnist_pruning.experiment import RECIPE
from experiments.mnist_pruning.methods import METHODS, masks
from experiments.mnist_pruning.methods.masks import MASKS, RelaxedMask
from tests.experiments.support import small_config


def _cauchy(x, k, *, scale):
    """As far above the (k + 1)-th largest as an arctangent has it."""
    return 0.5 + jnp.arctan((x - jnp.sort(x)[-k - 1]) / scale) / jnp.pi


def test_every_mask_is_made_with_its_strength():
    x = jnp.linspace(0.1, 1.0, 12)
    key = jax.random.key(0)
    for name in MASKS:
        weak, strong = (masks.mask_of(name, strength, 4)(x, 3, key) for strength in (1e-3, 1.0))
        np.testing.assert_allclose(weak, x >= x[-3], atol=0.05)  # all of them harden
        assert np.abs(strong - weak).max() > 0.1


def test_a_mask_is_one_entry(monkeypatch):
    monkeypatch.setitem(MASKS, "cauchy", RelaxedMask(_cauchy, "scale"))
    with pytest.raises(UsageError, match=r"^config\.mask\.name='magic' .* one of .*, neuralsort, cauchy$"):
        RECIPE.validate(small_config(mask__name="magic"))
    w = jnp.linspace(-1.0, 0.9, 20)
    config = small_config(method="mask_straight_through", mask__name="cauchy", mask__strength=0.25)
    RECIPE.validate(config)
    weights = METHODS["mask_straight_through"].make(config, 1).weights
    pull = jax.grad(lambda w: weights(w, {}, jnp.float32(0), jax.random.key(0)).sum())(w)
    expected = jax.grad(lambda w: (w * _cauchy(jnp.abs(w), 2, scale=0.25)).sum())(w)
    np.testing.assert_allclose(pull, expected, rtol=1e-5)
