"""EfficientNet-Lite0 in whole and in part: what is trained starts from ImageNet's weights, with a head of zeros."""

import jax
import numpy as np
import pytest

from configs.cifar100_vit import get_config
from experiments.cifar100_vit.experiment import RECIPE
from experiments.core.errors import UsageError
from experiments.core.input.dataset import Data
from experiments.core.training import train
from experiments.vision import efficientnet_weights, package
from tests.experiments.vision.test_efficientnet import random_variables

RNG = np.random.default_rng(0)


variables = pytest.fixture(scope="module")(random_variables)


@pytest.fixture
def build(monkeypatch, variables):
    monkeypatch.setattr(efficientnet_weights, "load", lambda: variables)

    def built(argument, shape, dtype):
        config = get_config(argument)
        train.validate(config)
        RECIPE.validate(config)
        images = (RNG.uniform(0, 3, size=(6, *shape))).astype(dtype)
        examples = {"image": images, "label": np.arange(6, dtype=np.int32)}
        return RECIPE.build(config, Data(examples, examples, 10, "test")), examples

    return built


def test_last_block_trains_with_zero_head(build, variables):
    experiment, examples = build("last_block,loss=xent", (1, 1, 192), np.float16)
    assert experiment.pretrained.keys() == {"block_15", "head"}
    params = jax.jit(experiment.init)(jax.random.key(0)) | experiment.pretrained
    np.testing.assert_array_equal(
        params["block_15"]["expand"]["kernel"], variables["params"]["block_15"]["expand"]["kernel"]
    )
    value_and_grad = jax.jit(jax.value_and_grad(lambda params: experiment.loss(params, examples, None, None)[0]))
    value, gradient = value_and_grad(params)
    assert value == pytest.approx(np.log(10))
    assert not np.any(gradient["block_15"]["expand"]["kernel"])  # nothing comes through a head of zeros
    params["classifier"] = jax.tree.map(np.subtract, params["classifier"], gradient["classifier"])
    value, gradient = value_and_grad(params)
    assert value < np.log(10)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradient))


def test_whole_network_needs_an_accelerator(build, monkeypatch):
    experiment, examples = build("whole", (160, 160, 3), np.uint8)
    params = jax.eval_shape(experiment.init, jax.random.key(0))
    assert params.keys() - experiment.pretrained.keys() == {"classifier"}
    # As many as ImageNet's network has, but for 900 classes.
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 4_652_008 - 1281 * 990
    augmented = jax.eval_shape(experiment.augment, jax.random.key(0), examples["image"])
    assert augmented.shape == (6, 160, 160, 3)
    monkeypatch.setattr(package.Package, "is_installed", lambda self: True)
    with pytest.raises(
        UsageError, match=r"efficientnet_lite0 at 160 pixels .* `make cifar100 PRESET=pretrained` runs anywhere"
    ):
        RECIPE.prepare(get_config("whole"))


def test_two_networks_are_refused():
    for one, other in (("features", "last_block"), ("last_block", "small"), ("whole", "pretrain")):
        with pytest.raises(UsageError, match=f"{one} is not allowed with {other}: they are two networks"):
            get_config(f"{other},{one}")


def test_the_transformer_asks_for_a_gpu(monkeypatch):
    monkeypatch.setattr(package.Package, "is_installed", lambda self: True)
    config = get_config("transformer")
    RECIPE.validate(config)
    with pytest.raises(UsageError, match=r"config\.accelerator=True.* `make cifar100 PRESET=last_block`"):
        RECIPE.prepare(config)
    config.accelerator = False
    with pytest.raises(UsageError, match=r"config\.model\.attention='cudnn'"):
        RECIPE.prepare(config)
    config.model.dtype = "float32"
    with pytest.raises(UsageError, match=r"config\.model\.attention='cudnn'"):
        RECIPE.validate(config)
