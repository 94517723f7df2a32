"""The config for big_vision, and the launcher that registers our losses, run beside a stand-in for big_vision."""

import re
import sys
import types

import jax
import numpy as np
import pytest

import ops
from configs.big_vision import train
from configs.big_vision.cifar100_vit import get_config
from configs.cifar100_vit import get_config as experiment_config
from experiments.core.errors import UsageError, in_one_line


@pytest.fixture
def launched(monkeypatch, tmp_path):
    """Starts big_vision with a config, in this process; returns its `utils` and the arguments it is started with."""

    def launch(config):
        started, utils = [], types.ModuleType("big_vision.utils")
        trainer = types.SimpleNamespace(main=started.append)
        monkeypatch.setitem(sys.modules, "big_vision", types.SimpleNamespace(train=trainer, utils=utils))
        monkeypatch.setattr(train.flags, "FLAGS", types.SimpleNamespace(config=config))
        monkeypatch.setattr(train.download, "fetch", lambda address: tmp_path / address.rpartition("/")[2])
        train.main(["here"])
        assert started == [["here"]]
        return utils

    return launch


def test_big_vision_is_given_our_losses(launched, tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(6, 100)).astype(np.float32)
    rank = np.array([0, 1, 2, 5, 9, 50])
    classes = np.argsort(-logits, axis=1)[np.arange(6), rank]
    labels = np.eye(100, dtype=np.float32)[classes]
    config = get_config("loss=topk,p=4/3")
    config.fine_tuning_loss.lam = 0.5
    utils = launched(config)
    assert config.model_init == str(tmp_path / "ViT-B_16.npz")

    @jax.jit
    def found(logits):
        names = ("fine_tuning_loss", "top1_error", "top3_error", "top10_error")
        each = {name: getattr(utils, name)(logits=logits, labels=labels, reduction=False) for name in names}
        options = {"k": 3, "lam": 0.5, "p": 4 / 3}
        expected = ops.topk_fenchel_young_loss(logits, classes, **options), ops.topk_mask(logits, **options)
        mean_and_gradient = jax.value_and_grad(lambda x: getattr(utils, config.loss)(logits=x, labels=labels))(logits)
        return each, mean_and_gradient, expected

    each, (mean, gradient), (expected, mask) = found(logits)
    np.testing.assert_allclose(each["fine_tuning_loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(mean, expected.mean(), rtol=1e-5)
    np.testing.assert_allclose(gradient, (mask - labels) / 6, atol=1e-6)
    for k in (1, 3, 10):
        np.testing.assert_array_equal(each[f"top{k}_error"], rank >= k)
    names = {evaluation["loss_name"] for evaluation in config.evals.values()}
    assert names == {"softmax_xent", *(f"top{k}_error" for k in range(1, 11))}


def test_single_label_loss_accepts_one_hot(launched):
    logits, labels = np.zeros((2, 100), np.float32), np.eye(100, dtype=np.float32)[[3, 99]]
    utils = launched(get_config("loss=truncated_entropy"))
    found = jax.jit(lambda logits, labels: utils.fine_tuning_loss(logits=logits, labels=labels))(logits, labels)
    np.testing.assert_allclose(found, np.log(98), rtol=1e-5)


def test_mistakes_end_in_one_line(capsys):
    def told(function):
        assert in_one_line(lambda: function([])) == 2
        return capsys.readouterr().err

    config = get_config()
    config.fine_tuning_loss.p = 3.0
    said = told(lambda argv: train.register(types.ModuleType("utils"), config))
    assert re.fullmatch(r"error: config.fine_tuning_loss: p must be in \(1, 2\], got 3.0: .*\n", said)
    assert re.fullmatch("error: big_vision is not on PYTHONPATH: .*\n", told(train._parse))
    with pytest.raises(UsageError, match="recipe=mine is not allowed: it must be one of vit_jax, big_vision"):
        get_config("recipe=mine")


def test_config_matches_the_experiment():
    config, ours = get_config(), experiment_config()
    assert config.fine_tuning_loss.to_dict() == {"name": "topk", "k": 3, "p": 2.0, "lam": 0.1, "target": "one_hot"}
    assert (config.loss, config.total_steps) == ("fine_tuning_loss", ours.steps)
    assert (config.lr, config.input.batch_size) == (ours.optimizer.learning_rate, ours.batch_size)
    assert config.model_init == ours.pretrained
    assert (config.optax_name, config.optax.decay, config.grad_clip_norm, config.wd) == ("trace", 0.9, 1.0, 0.0)
    assert config.schedule.to_dict() == {"warmup_steps": 10, "decay_type": "cosine"}
    assert (config.num_classes, config.model_name, config.model.variant) == (100, "vit", "B/16")
    training, evaluation = config.input.pp, config.evals.test.pp_fn
    assert training.startswith("decode|inception_crop(384)|flip_lr|value_range(-1, 1)|onehot(100, ")
    assert evaluation.startswith("decode|resize(384)|value_range(-1, 1)|onehot(100, ")
    assert (config.evals.top3.data.split, config.evals.val.data.split) == ("test", "train[98%:]")
    assert config.input.data.split == "train[:98%]"

    other = get_config("loss=xent,steps=500,recipe=big_vision,weights=augreg")
    assert (other.fine_tuning_loss.name, other.lr, other.schedule.warmup_steps) == ("xent", 3e-3, 50)
    assert other.input.pp.startswith("decode|resize_small(448)|random_crop(384)|flip_lr|value_range")
    assert other.evals.test.pp_fn.startswith("decode|resize_small(448)|central_crop(384)|value_range")
    assert "augreg" in other.model_init
