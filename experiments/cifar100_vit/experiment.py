"""The fine-tuning experiment for the trainer: a network, a top-k loss or cross-entropy, top-k accuracies.

The network is a vision transformer, or with `config.features` a linear head on the features of a frozen one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

import ops
from experiments.cifar100_vit.losses import LOSSES, fine_tuning_loss
from experiments.core.config import about, require
from experiments.core.errors import UsageError
from experiments.core.input import augment
from experiments.core.input import dataset as data_lib
from experiments.core.input.dataset import Data
from experiments.core.record import hardware
from experiments.core.training import optimizer
from experiments.core.training.experiment import Batch, Experiment, Metrics, Params, Recipe
from experiments.vision import download, features, model_fields, vit
from experiments.vision.head import Head
from experiments.vision.pretrained import load_pretrained

MAX_K = 10  # of the top-k accuracies
RANK = "rank"  # the name of what is kept of each image


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that the trainer knows nothing of."""
    if has_features(config):
        features.validate(config)
        require(config.images_per_class >= 0, "images_per_class", config.images_per_class, "at least 0")
    else:
        model_fields.validate(config, make_model(config, num_classes=1))
    try:
        fine_tuning_loss(**config.loss)
    except ValueError as error:
        raise UsageError(f"config.loss: {error}") from error


def prepare(config: ml_collections.ConfigDict) -> None:
    """Asks for accelerators, unless the config does without, and fetches the weights to start from."""
    if has_features(config):
        features.prepare(config)
        return
    network = f"{config.model.variant} at {config.input.size} pixels in batches of {config.batch_size}"
    hardware.require_accelerator(config, network, f"the weights {config.pretrained}", "make cifar100-small")
    if config.pretrained.startswith(download.SCHEMES):
        with about("pretrained", config.pretrained):
            download.fetch(config.pretrained)


def has_features(config: ml_collections.ConfigDict) -> bool:
    """Whether a head alone is trained, on features that do not change."""
    return config.get("features") is not None


def load(config: ml_collections.ConfigDict) -> Data:
    """The images, or their features."""
    if not has_features(config):
        return data_lib.load(config)
    data, count = features.load(config), config.images_per_class
    return data_lib.first_of_each_class(data, count) if count else data


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
    network = (_head if has_features(config) else _transformer)(config, data)
    loss_of = fine_tuning_loss(**config.loss)
    max_k = min(MAX_K, data.num_classes)

    def loss(params: Params, batch: Batch, key: jax.Array, progress: jax.Array) -> tuple[jax.Array, Metrics]:
        del key, progress
        value = loss_of(network.logits(params, batch["image"]), batch["label"]).mean()
        return value, {"loss": value}

    def evaluate(params: Params, examples: Batch, progress: jax.Array) -> Metrics:
        del progress
        logits = network.logits(params, network.prepare(examples["image"]))
        hits = ops.topk_accuracy(logits, examples["label"], max_k).astype(jnp.float32) * 100.0
        return {
            f"{data.prefix}_accuracy": {str(k): hits[:, k - 1] for k in range(1, max_k + 1)},
            # One number for all of Figure 6, to choose hyper-parameters by.
            "mean_topk_error": 100.0 - hits.mean(axis=1),
        }

    def examine(params: Params, examples: Batch) -> dict[str, jax.Array]:
        logits = network.logits(params, network.prepare(examples["image"]))
        hits = ops.topk_accuracy(logits, examples["label"], max_k)
        # How many classes are ahead of the label, max_k at most.
        return {RANK: max_k - hits.sum(axis=1, dtype=jnp.uint8)}

    return Experiment(
        init=network.init,
        loss=loss,
        evaluate=evaluate,
        examine=examine,
        optimizer=optimizer.make(config),
        pretrained=_body(config, network.init) if config.pretrained else None,
        augment=network.augment,
        flops_per_example=network.flops,
        headline=(f"{data.prefix}_accuracy/1", f"{data.prefix}_accuracy/3"),
    )


class _Network(NamedTuple):
    """What there is to train, for examples whose `image` is an image or its features.

    Attributes:
      init: makes the parameters.
      logits: of the parameters and what `augment` or `prepare` returns.
      augment: of a key and the images of a training batch; None: they are taken as they are.
      prepare: of images to evaluate on.
      flops: of a training step per example.
    """

    init: Callable[[jax.Array], Params]
    logits: Callable[[Params, jax.Array], jax.Array]
    augment: Callable[[jax.Array, jax.Array], jax.Array] | None
    prepare: Callable[[jax.Array], jax.Array]
    flops: float


def _transformer(config: ml_collections.ConfigDict, data: Data) -> _Network:
    size, recipe = config.input.size, config.input.recipe
    on_device = config.input.augment_on == "device"
    model = make_model(config, data.num_classes)
    channels = data.train["image"].shape[-1] if data.train else 3

    def init(key: jax.Array) -> Params:
        return model.init(key, jnp.zeros((1, size, size, channels)))["params"]

    def logits(params: Params, images: jax.Array) -> jax.Array:
        return jnp.asarray(model.apply({"params": params}, images))

    def augmented(key: jax.Array, images: jax.Array) -> jax.Array:
        return augment.TRAIN[recipe](key, images, size) if on_device else augment.normalise(images)

    def prepared(images: jax.Array) -> jax.Array:
        return augment.EVALUATION[recipe](images, size) if on_device else augment.normalise(images)

    return _Network(init, logits, augmented, prepared, 3.0 * vit.forward_flops(model, size, channels))


def _head(config: ml_collections.ConfigDict, data: Data) -> _Network:
    """Zeros to begin with: what a seed changes is the order of the examples alone."""
    del config
    width = data.train["image"].shape[-1]
    model = Head(data.num_classes)

    def init(key: jax.Array) -> Params:
        return model.init(key, jnp.zeros((1, width)))["params"]

    def logits(params: Params, examples: jax.Array) -> jax.Array:
        return jnp.asarray(model.apply({"params": params}, examples))

    # Forward, and backward to the parameters alone: nothing in front of them is trained.
    return _Network(init, logits, None, lambda examples: examples, 4.0 * width * data.num_classes)


def _body(config: ml_collections.ConfigDict, init: Any) -> Params:
    """The pretrained parameters, without a head: that is the network's own, which starts from zero."""
    shapes = jax.eval_shape(init, jax.random.key(0))
    head = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes["head"])
    with about("pretrained", config.pretrained):
        loaded = load_pretrained(config.pretrained, shapes | {"head": head})
    return {name: jax.tree.map(np.asarray, part) for name, part in loaded.items() if name != "head"}


RECIPE = Recipe("cifar100_vit", validate, build, load, prepare)
