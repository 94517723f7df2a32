"""The fine-tuning experiment: a network, a top-k loss or cross-entropy, and top-k accuracies."""

import jax
import jax.numpy as jnp
import ml_collections

import ops
from experiments.cifar100_vit import RANK, calibration, networks
from experiments.cifar100_vit.losses import KINDS, LOSSES, fine_tuning_loss
from experiments.cifar100_vit.networks import is_convolutional
from experiments.core.config import about, require, require_one_of
from experiments.core.errors import UsageError
from experiments.core.input import dataset as data_lib
from experiments.core.input.dataset import Data
from experiments.core.record import hardware
from experiments.core.training import optimizer
from experiments.core.training.experiment import Batch, Experiment, Metrics, Params, Recipe
from experiments.vision import dinov2, download, efficientnet_weights, features, vit
from experiments.vision.networks import has_features
from experiments.vision.networks import validate as validate_transformer

MAX_K = 10  # the largest k of the top-k accuracies


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that the trainer does not know."""
    if has_features(config):
        features.validate(config)
        require(config.images_per_class >= 0, "images_per_class", config.images_per_class, "at least 0")
    elif is_convolutional(config):
        require_one_of("network", config.network, features.NETWORKS)
    else:
        validate_transformer(config)
    if has_features(config) or is_convolutional(config):
        require(not config.pretrained, "pretrained", config.pretrained, "empty, as the network has ImageNet's weights")
    try:
        fine_tuning_loss(**config.loss)
    except ValueError as error:
        raise UsageError(f"config.loss: {error}") from error


def prepare(config: ml_collections.ConfigDict) -> None:
    """Requires an accelerator, unless the config does without one, and fetches the weights to start from."""
    if has_features(config):
        efficientnet_weights.PACKAGE.require_installed()
        return
    if config.get("pretrained") == dinov2.NAME:
        dinov2.PACKAGE.require_installed()
        network = f"{dinov2.PACKAGE.content} at {config.input.size} pixels in batches of {config.batch_size}"
        days = "two CPU cores would take days for it"  # 4.6 s an image, measured beside other jobs
        hardware.require_accelerator(config, network, days, "make cifar100 PRESET=last_block")
        attention, on_gpu = config.model.attention, jax.default_backend() == "gpu"
        require(attention != "cudnn" or on_gpu, "model.attention", attention, "xla, except on a GPU")
        return
    if is_convolutional(config):
        efficientnet_weights.PACKAGE.require_installed()
        network = f"{config.network} at {config.input.size} pixels in batches of {config.batch_size}"
        hardware.require_accelerator(config, network, "the package of its weights", "make cifar100 PRESET=pretrained")
        return
    network = f"{config.model.variant} at {config.input.size} pixels in batches of {config.batch_size}"
    hardware.require_accelerator(config, network, f"the weights {config.pretrained}", "make cifar100 PRESET=small")
    if config.pretrained.startswith(download.SCHEMES):
        with about("pretrained", config.pretrained):
            download.fetch(config.pretrained)


def load(config: ml_collections.ConfigDict) -> Data:
    """Loads the images, or their features."""
    if not has_features(config):
        return data_lib.load(config)
    data, count = features.load(config), config.images_per_class
    return data_lib.first_of_each_class(data, count) if count else data


def build(config: ml_collections.ConfigDict, data: Data) -> Experiment:
    """Returns the experiment for images and classes as `data` have them."""
    if "k" in LOSSES[config.loss.name].reads:
        allowed = f"at most the {data.num_classes} classes of {config.dataset}"
        require(config.loss.k <= data.num_classes, "loss.k", config.loss.k, allowed)
    if LOSSES[config.loss.name].single_label and data.is_multi_hot:
        several = ", ".join(name for name, loss in LOSSES.items() if not loss.single_label)
        allowed = f"one of {several}, as images of {config.dataset} may have several classes each"
        require(False, "loss.name", config.loss.name, allowed)
    network = networks.make(config, data)
    loss_of, lam = fine_tuning_loss(**config.loss), config.loss.lam
    # The temperature at which logits are probabilities. (lam = 0 is a loss without any.)
    temperature = lam if "lam" in LOSSES[config.loss.name].reads else 1.0
    max_k = min(MAX_K, data.num_classes)

    def loss(params: Params, batch: Batch, key: jax.Array, progress: jax.Array) -> tuple[jax.Array, Metrics]:
        value = loss_of(network.logits(params, batch["image"]), batch["label"]).mean()
        return value, {"loss": value}

    def logits_of(params: Params, examples: Batch) -> jax.Array:
        return network.logits(params, network.prepare(examples["image"]))

    def correct(logits: jax.Array, examples: Batch) -> jax.Array:
        """Returns bool [B, max_k]: whether the label, or one of several, is among the k largest logits."""
        return ops.topk_accuracy(logits, examples["label"], range(1, max_k + 1))

    def evaluate(params: Params, examples: Batch, progress: jax.Array) -> Metrics:
        logits = logits_of(params, examples)
        hits = correct(logits, examples).astype(jnp.float32) * 100.0
        return {
            f"{data.prefix}_accuracy": {str(k): hits[:, k - 1] for k in range(1, max_k + 1)},
            # One number for the whole of Figure 6, by which hyper-parameters are chosen.
            "mean_topk_error": 100.0 - hits.mean(axis=1),
            "logit_norm": jnp.linalg.norm(logits, axis=-1),
            "calibration_error": calibration.gaps(logits / temperature, hits[:, 0]),
        }

    def examine(params: Params, examples: Batch) -> dict[str, jax.Array]:
        # The number of classes ahead of the label, at most max_k.
        return {RANK: max_k - correct(logits_of(params, examples), examples).sum(axis=1, dtype=jnp.uint8)}

    return Experiment(
        init=network.init,
        loss=loss,
        evaluate=evaluate,
        examine=examine,
        conclude=lambda means: {**means, "calibration_error": jnp.abs(means["calibration_error"]).sum()},
        optimizer=optimizer.make(config, stacked=(vit.SCANNED,)),
        pretrained=network.pretrained,
        augment=network.augment,
        flops_per_example=network.flops,
        headline=(f"{data.prefix}_accuracy/1", f"{data.prefix}_accuracy/3"),
    )


RECIPE = Recipe("cifar100_vit", validate, build, load, prepare, KINDS)
