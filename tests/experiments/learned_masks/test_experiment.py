"""Masks of a frozen network: budgets, the scores of Wanda, what is trained, and mistakes in the config."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from configs.learned_masks import get_config
from experiments.core.config import to_json
from experiments.core.errors import UsageError
from experiments.core.input.dataset import Data
from experiments.learned_masks import experiment
from experiments.learned_masks.experiment import RECIPE
from experiments.vision import efficientnet_weights
from experiments.vision.efficientnet import LAST_BLOCK
from tests.experiments.vision.test_efficientnet import random_variables

HEAD = LAST_BLOCK + 1  # the network behind all blocks, with a single kernel


def data_of(first_block):
    """Maps in front of the last block, or of the head."""
    maps = np.random.default_rng(0).normal(size=(8, 1, 1, {LAST_BLOCK: 192, HEAD: 320}[first_block]))
    return Data(*2 * ({"image": maps.astype(np.float16), "label": np.arange(8, dtype=np.int32) % 3},), 3, "test")


DATA = data_of(LAST_BLOCK)

variables = pytest.fixture(scope="module")(random_variables)


@pytest.fixture
def build(tmp_path, monkeypatch, variables):
    """A function that builds a method at a pattern, from a block on, with a fixed head."""
    head = {
        "head/kernel": np.random.default_rng(1).normal(size=(1280, 3)).astype(np.float32),
        "head/bias": np.zeros(3, np.float32),
    }
    np.savez(tmp_path / "params.npz", **head)
    of_head = get_config("method=dense")
    of_head.update(steps=6, batch_size=4)
    (tmp_path / "config.json").write_text(json.dumps(to_json(of_head)))
    monkeypatch.setattr(efficientnet_weights, "load", lambda: variables)

    def built(method, pattern="2:4", first_block=LAST_BLOCK):
        monkeypatch.setattr(experiment, "FIRST_BLOCK", first_block)
        config = get_config(f"method={method},pattern={pattern}")
        config.pretrained = "" if method == "dense" else str(tmp_path / "params.npz")
        RECIPE.validate(config)
        return RECIPE.build(config, data_of(first_block))

    return built


@pytest.mark.parametrize(
    ("method", "pattern", "first_block"),
    [
        ("learned", "2:4", LAST_BLOCK),
        ("relaxed", "fifth", HEAD),
        ("gumbel", "half", HEAD),
        ("edge_popup", "fifth", HEAD),
    ],
)
def test_methods_learn_within_their_budget(build, method, pattern, first_block):
    made = build(method, pattern, first_block)
    batch = {name: jnp.asarray(value) for name, value in data_of(first_block).train.items()}
    params = made.init(jax.random.key(0))

    @jax.jit
    def step(params):
        slopes, metrics = jax.grad(made.loss, has_aux=True)(params, batch, jax.random.key(1), jnp.float32(0.5))
        found = made.evaluate(params, batch, jnp.float32(1))
        # The losses of an evaluation need one more forward pass, which all methods share.
        return slopes, metrics, found if method == "learned" else {"kept": found["kept"]}

    slopes, metrics, found = step(params)
    expected = 20.0 if pattern == "fifth" else 50.0
    assert found["kept"] == pytest.approx(expected, abs=0.01)
    assert (metrics["kept"] == pytest.approx(expected, abs=0.01)) == (method in ("learned", "edge_popup"))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((slopes, metrics, found)))
    assert any(np.any(leaf != 0) for leaf in jax.tree.leaves(slopes))
    if method == "edge_popup":  # scores of pruned weights have slopes, too
        assert np.mean(np.asarray(slopes["scores"]["head/kernel"]) != 0) > 0.5


def test_gates_are_of_several_kernels(build):
    made = build("gumbel")
    params = jax.eval_shape(made.init, jax.random.key(0))
    assert len(params["scores"]) == 3
    value, _ = jax.eval_shape(made.loss, params, DATA.train, jax.random.key(1), jnp.float32(0.5))
    assert value.shape == ()


def test_wanda_scores_use_input_norms(build, variables):
    found, weights = build("wanda").init(jax.random.key(0))["scores"], variables["params"]
    assert len(found) == 3
    assert set(found) < set(flatten_dict(weights, sep="/"))
    kernel = np.abs(weights["block_15"]["expand"]["kernel"])
    expected = kernel * np.linalg.norm(DATA.train["image"].astype(np.float32).reshape(-1, 192), axis=0)[:, None]
    np.testing.assert_allclose(
        found["block_15/expand/kernel"], expected / np.sqrt(np.mean(expected**2)), rtol=1e-4, atol=1e-6
    )


def test_final_run_reports_refit_accuracies(build):
    made = build("magnitude", "fifth", HEAD)
    found = made.at_end(made.init(jax.random.key(0)))
    assert set(found) == {f"test_accuracy_{name}" for name in ("own_norms", "norms", "head")}
    assert all(0 <= value <= 100 for value in found.values())


def test_mistakes_are_named():
    config = get_config("method=learned")
    config.pretrained = ""
    with pytest.raises(UsageError, match=r"config\.pretrained=''.* a dense run"):
        RECIPE.validate(config)
