"""The fine-tuning experiment for the trainer: a vision transformer, a top-k loss or cross-entropy, top-k accuracies."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

import ops
from experiments.cifar100_vit.losses import LOSSES, fine_tuning_loss
from experiments.core.config import about, require
from experiments.core.errors import UsageError
from experiments.core.input import augment
from experiments.core.input.dataset import Data
from experiments.core.record import hardware
from experiments.core.training import optimizer
from experiments.core.training.experiment import Batch, Experiment, Metrics, Params, Recipe
from experiments.vision import download, model_fields, vit
from experiments.vision.pretrained import load_pretrained

MAX_K = 10  # of the top-k accuracies


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that the trainer knows nothing of."""
    model_fields.validate(config, make_model(config, num_classes=1))
    try:
        fine_tuning_loss(**config.loss)
    except ValueError as error:
        raise UsageError(f"config.loss: {error}") from error


def prepare(config: ml_collections.ConfigDict) -> None:
    """Asks for accelerators, unless the config does without, and fetches the weights to start from."""
    network = f"{config.model.variant} at {config.input.size} pixels in batches of {config.batch_size}"
    hardware.require_accelerator(config, network, f"the weights {config.pretrained}", "make cifar100-small")
    if config.pretrained.startswith(download.SCHEMES):
        with about("pretrained", config.pretrained):
            download.fetch(config.pretrained)


def make_model(config: ml_collections.ConfigDict, num_classes: int) -> vit.VisionTransformer:
    """The network of a config."""
    options = model_fields.options(config)
    with about("model.variant", config.model.variant):
        return vit.make(config.model.variant, num_classes, scan=config.model.scan, **options)


def build(config: ml_collections.ConfigDict, data: Data) -> Experiment:
    """The experiment on images with the number of channels and of classes that `data` have."""
    if LOSSES[config.loss.name].topk:
        allowed = f"at most the {data.num_classes} classes of {config.dataset}"
        require(config.loss.k <= data.num_classes, "loss.k", config.loss.k, allowed)
    size, recipe = config.input.size, config.input.recipe
    on_device = config.input.augment_on == "device"
    model = make_model(config, data.num_classes)
    loss_of = fine_tuning_loss(**config.loss)
    max_k = min(MAX_K, data.num_classes)
    channels = data.train["image"].shape[-1] if data.train else 3

    def logits(params: Params, images: jax.Array) -> jax.Array:
        return jnp.asarray(model.apply({"params": params}, images))

    def init(key: jax.Array) -> Params:
        return model.init(key, jnp.zeros((1, size, size, channels)))["params"]

    def prepare(key: jax.Array, images: jax.Array) -> jax.Array:
        return augment.TRAIN[recipe](key, images, size) if on_device else augment.normalise(images)

    def loss(params: Params, batch: Batch, key: jax.Array, progress: jax.Array) -> tuple[jax.Array, Metrics]:
        del key, progress
        value = loss_of(logits(params, batch["image"]), batch["label"]).mean()
        return value, {"loss": value}

    def evaluate(params: Params, examples: Batch, progress: jax.Array) -> Metrics:
        del progress
        images = examples["image"]
        images = augment.EVALUATION[recipe](images, size) if on_device else augment.normalise(images)
        hits = ops.topk_accuracy(logits(params, images), examples["label"], max_k).astype(jnp.float32) * 100.0
        return {
            f"{data.prefix}_accuracy": {str(k): hits[:, k - 1] for k in range(1, max_k + 1)},
            # One number for all of Figure 6, to choose hyper-parameters by.
            "mean_topk_error": 100.0 - hits.mean(axis=1),
        }

    return Experiment(
        init=init,
        loss=loss,
        evaluate=evaluate,
        optimizer=optimizer.make(config),
        pretrained=_body(config, init) if config.pretrained else None,
        augment=prepare,
        flops_per_example=3.0 * vit.forward_flops(model, size, channels),
        headline=(f"{data.prefix}_accuracy/1", f"{data.prefix}_accuracy/3"),
    )


def _body(config: ml_collections.ConfigDict, init: Any) -> Params:
    """The pretrained parameters, without a head: that is the network's own, which starts from zero."""
    shapes = jax.eval_shape(init, jax.random.key(0))
    head = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes["head"])
    with about("pretrained", config.pretrained):
        loaded = load_pretrained(config.pretrained, shapes | {"head": head})
    return {name: jax.tree.map(np.asarray, part) for name, part in loaded.items() if name != "head"}


RECIPE = Recipe("cifar100_vit", validate, build, prepare=prepare)
