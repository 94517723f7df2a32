"""A mask is one entry: the method, the suite, the table and the figures find it there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiments.mnist_pruning.masks import MASKS, RelaxedMask

from experiments.core.errors import UsageError
from experiments.mnist_pruning import masks
from experiments.mnist_pruning.experiment import RECIPE
from experiments.mnist_pruning.methods import METHODS
from experiments.mnist_pruning.suite.__main__ import SUITE
from tests.experiments.mnist_pruning.reported import assert_reported
from tests.experiments.support import small_config


def _cauchy(x, k, *, scale):
    """As far above the (k + 1)-th largest as an arctangent has it."""
    return 0.5 + jnp.arctan((x - jnp.sort(x)[-k - 1]) / scale) / jnp.pi


@pytest.fixture
def cauchy(monkeypatch):
    """The entry of a mask that there is not."""
    monkeypatch.setitem(
        MASKS, "cauchy", RelaxedMask(lambda: _cauchy, "scale", "arctangent", ("#123456", ":"), demo=0.25)
    )


def test_every_mask_is_made_with_its_strength():
    x = jnp.linspace(0.1, 1.0, 12)
    key = jax.random.key(0)
    for name in MASKS:
        weak, strong = (masks.mask_of(name, strength, 4)(x, 3, key) for strength in (1e-3, 1.0))
        np.testing.assert_allclose(weak, x >= x[-3], atol=0.05)  # all of them harden
        assert np.abs(strong - weak).max() > 0.1


@pytest.mark.usefixtures("cauchy")
def test_a_mask_is_one_entry(tmp_path):
    runs = {run.name: run for run in SUITE.presets["demo"]()}
    config = SUITE.config(runs["final-layers123-cauchy_straight_through"], tmp_path)
    RECIPE.validate(config)
    assert (config.mask.name, config.mask.strength) == ("cauchy", 0.25)
    with pytest.raises(UsageError, match=r"^config\.mask\.name='magic' .* one of .*, neuralsort, cauchy$"):
        RECIPE.validate(small_config(mask__name="magic"))

    fields = {"method": "mask_straight_through", "mask__name": "cauchy", "mask__strength": 0.25}
    w = jnp.linspace(-1.0, 0.9, 20)
    config = small_config(**fields)
    weights = METHODS["mask_straight_through"].make(config, 1).weights
    pull = jax.grad(lambda w: weights(w, {}, jnp.float32(0), jax.random.key(0)).sum())(w)
    expected = jax.grad(lambda w: (w * _cauchy(jnp.abs(w), 2, scale=0.25)).sum())(w)
    np.testing.assert_allclose(pull, expected, rtol=1e-5)

    label = "hard, arctangent gradient"
    assert_reported(tmp_path, f"{label} | scale = 0.25", f"{label}, scale = 0.25", **fields)
