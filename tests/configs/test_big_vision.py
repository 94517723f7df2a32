"""The config for big_vision, and the launcher that registers our losses, run beside a stand-in for big_vision."""

import hashlib
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ops
from configs.big_vision import train
from configs.big_vision.cifar100_vit import get_config
from configs.cifar100_vit import get_config as experiment_config
from experiments.core.errors import UsageError, in_one_line

ROOT = Path(__file__).resolve().parents[2]

# As much of big_vision as the launcher and the look-up of losses touch: flags, transfer guard, calls under jit.
TRAIN = """
import os
import big_vision.utils as u
import jax
import numpy as np
from absl import flags
from ml_collections import config_flags

config_flags.DEFINE_config_file("config", None, "Training configuration.", lock_config=True)
flags.DEFINE_string("workdir", default=None, help="Work unit directory.")
jax.config.parse_flags_with_absl()
jax.config.update("jax_transfer_guard", "disallow")

def main(argv):
    del argv
    config = flags.FLAGS.config
    with jax.transfer_guard("allow"):
        given = jax.device_put(dict(np.load(os.path.join(flags.FLAGS.workdir, "given.npz"))))

    def loss_fn(logits):
        return getattr(u, config.get("loss", "sigmoid_xent"))(logits=logits, labels=given["labels"])

    def evaluation(logits, labels):
        named = {name: name for name in ("softmax_xent", "top1_error", "top3_error", "top10_error")}
        named["loss"] = config.loss
        return {
            name: getattr(u, loss)(logits=logits, labels=labels, reduction=False) for name, loss in named.items()
        }

    loss, gradient = jax.jit(jax.value_and_grad(loss_fn))(given["logits"])
    found = {"mean": loss, "gradient": gradient, **jax.jit(evaluation)(given["logits"], given["labels"])}
    np.savez(os.path.join(flags.FLAGS.workdir, "found.npz"), **jax.device_get(found))
    with open(os.path.join(flags.FLAGS.workdir, "config.json"), "w") as file:
        file.write(config.to_json())
"""
UTILS = """
import jax
import jax.numpy as jnp

def softmax_xent(*, logits, labels, reduction=True):
    nll = -jnp.sum(labels * jax.nn.log_softmax(logits), axis=-1)
    return jnp.mean(nll) if reduction else nll
"""


@pytest.fixture
def launch(tmp_path):
    """Runs the launcher in a process of its own, beside the stand-in."""
    package = tmp_path / "path" / "big_vision"
    package.mkdir(parents=True)
    for name, source in {"__init__": "", "train": TRAIN, "utils": UTILS}.items():
        (package / f"{name}.py").write_text(source)

    def run(variant, *options):
        arguments = (f"--config=configs/big_vision/cifar100_vit.py:{variant}", f"--workdir={tmp_path}", *options)
        environment = os.environ | {"PYTHONPATH": str(package.parent), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return subprocess.run(
            [sys.executable, "-m", "configs.big_vision.train", *arguments],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    return run


def test_big_vision_is_given_our_losses(launch, tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(6, 100)).astype(np.float32)
    classes = np.array([3, 99, 0, 50, 3, 7])
    labels = np.eye(100, dtype=np.float32)[classes]
    np.savez(tmp_path / "given.npz", logits=logits, labels=labels)
    # Weights that have been downloaded before.
    address = "gs://vit_models/imagenet21k/ViT-B_16.npz"
    name = f"{hashlib.sha256(address.encode()).hexdigest()[:16]}-ViT-B_16.npz"
    cached = tmp_path / "cache" / "sparse-topk" / "pretrained" / name
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"weights")

    process = launch("loss=topk,p=4/3", "--config.fine_tuning_loss.lam=0.5", "--config.lr=0.01")
    assert process.returncode == 0, process.stderr
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["lr"], config["model_init"]) == (0.01, str(cached))
    with np.load(tmp_path / "found.npz") as file:
        found = dict(file)

    @jax.jit
    def ours(logits):
        options = {"k": 3, "lam": 0.5, "p": 4 / 3}
        return ops.topk_fenchel_young_loss(logits, classes, **options), ops.topk_mask(logits, **options)

    expected, mask = ours(logits)
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(found["mean"], expected.mean(), rtol=1e-5)
    np.testing.assert_allclose(found["gradient"], (mask - labels) / 6, atol=1e-6)
    cross_entropy = optax.softmax_cross_entropy(jnp.asarray(logits), jnp.asarray(labels))
    np.testing.assert_allclose(found["softmax_xent"], cross_entropy, rtol=1e-5)
    rank = (logits > logits[np.arange(6), classes, None]).sum(axis=1)
    for k in (1, 3, 10):
        np.testing.assert_array_equal(found[f"top{k}_error"], rank >= k)
    names = {evaluation["loss_name"] for evaluation in config["evals"].values()}
    assert names == {"softmax_xent", *(f"top{k}_error" for k in range(1, 11))}


def test_mistakes_end_in_one_line(capsys):
    def told(function):
        assert in_one_line(lambda: function([])) == 2
        return capsys.readouterr().err

    config = get_config()
    config.fine_tuning_loss.p = 3.0
    said = told(lambda argv: train.register(types.ModuleType("utils"), config))
    assert re.fullmatch(r"error: config.fine_tuning_loss: p must be in \(1, 2\], got 3.0: .*\n", said)
    assert re.fullmatch("error: big_vision is not on PYTHONPATH: .*\n", told(train._parse))
    for argument, message in (
        ("loss=hinge", "loss=hinge is not allowed: it must be one of xent, topk, topk_mixture, .*sorted_xent"),
        ("recipe=mine", r"recipe=mine is not allowed: it must be one of vit_jax, big_vision"),
    ):
        with pytest.raises(UsageError, match=message):
            get_config(argument)


def test_the_config_is_that_of_the_experiment_in_the_terms_of_big_vision():
    config, ours = get_config(), experiment_config()
    assert config.fine_tuning_loss.to_dict() == {"name": "topk", "k": 3, "p": 2.0, "lam": 0.1, "target": "one_hot"}
    assert (config.loss, config.lr, config.total_steps) == (
        "fine_tuning_loss",
        ours.optimizer.learning_rate,
        ours.steps,
    )
    assert (config.input.batch_size, config.model_init) == (ours.batch_size, ours.pretrained)
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
