"""The pruning experiment for the trainer: an MLP, cross-entropy, and a method that prunes."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import optax

import ops
from experiments.core.config import require, require_wholes
from experiments.core.input.dataset import Data
from experiments.core.training import optimizer
from experiments.core.training.experiment import Batch, Experiment, Metrics, Recipe
from experiments.mnist_pruning import methods
from experiments.mnist_pruning.method import num_kept
from experiments.mnist_pruning.model import MLP, map_kernels
from experiments.mnist_pruning.model import Params as Network

Params = dict[str, Any]  # {"network": Network, "method": {layer: State}}


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that the trainer knows nothing of."""
    methods.validate(config)
    require_wholes(lambda widths: all(width > 0 for width in widths), "hidden", config.hidden, "a tuple of widths")
    num_layers = len(config.hidden) + 1
    require_wholes(
        lambda layers: 0 < len(layers) == len(set(layers)) and set(layers) <= set(range(1, num_layers + 1)),
        "prune_layers",
        config.prune_layers,
        f"a tuple of different layers out of 1 to {num_layers}",
    )


def build(config: ml_collections.ConfigDict, data: Data) -> Experiment:
    """The experiment on images of the size and with the number of classes that `data` have."""
    several = data.train["label"].ndim > 1
    require(not several, "label", config.get("label", "label"), "a feature of one class an image")
    _validate_density(config, data)
    model = MLP(config.hidden, data.num_classes)
    method = methods.METHODS[config.method].make(config)
    pruned = [str(layer) for layer in config.prune_layers]
    mean, std = data.pixel_mean_and_std()

    def inputs(images: jax.Array) -> jax.Array:
        """Standardised vectors [B, D] of images [B, H, W, C]."""
        return (images.reshape(images.shape[0], -1).astype(jnp.float32) - mean) / std

    def logits(network: Network, images: jax.Array) -> jax.Array:
        return jnp.asarray(model.apply({"params": network}, inputs(images)))

    def init(key: jax.Array) -> Params:
        network = model.init(key, inputs(jnp.asarray(data.train["image"][:1])))["params"]
        return {
            "network": network,
            "method": {layer: method.init(network[layer]["kernel"]) for layer in pruned},
        }

    def effective(params: Params, progress: jax.Array, key: jax.Array | None = None) -> Network:
        """The network of the forward pass; in its deterministic form without a key."""

        def weights(layer: str, kernel: jax.Array) -> jax.Array:
            layer_key = None if key is None else jax.random.fold_in(key, int(layer))
            return method.weights(kernel, params["method"][layer], progress, layer_key)

        return map_kernels(weights, params["network"], pruned)

    def loss(params: Params, batch: Batch, key: jax.Array, progress: jax.Array) -> tuple[jax.Array, Metrics]:
        network = effective(params, progress, key)
        scores = logits(network, batch["image"])
        cross_entropy = optax.softmax_cross_entropy_with_integer_labels(scores, batch["label"]).mean()
        penalty = sum(method.penalty(params["method"][layer], progress) for layer in pruned)
        return cross_entropy + penalty, {"loss": cross_entropy}

    def project(params: Params, progress: jax.Array) -> Params:
        def project_kernel(layer: str, kernel: jax.Array) -> jax.Array:
            del layer
            return method.project(kernel, progress)

        return params | {"network": map_kernels(project_kernel, params["network"], pruned)}

    def evaluate(params: Params, examples: Batch, progress: jax.Array) -> Metrics:
        network = effective(params, progress)
        hardened = map_kernels(lambda layer, kernel: _hardened(kernel, config.density), network, pruned)

        def error(network: Network) -> jax.Array:
            wrong = logits(network, examples["image"]).argmax(axis=-1) != examples["label"]
            return 100.0 * wrong.mean()

        return {
            "error": error(network),
            "train_density": _density([network[layer]["kernel"] for layer in pruned]),
            "train_density_per_layer": {layer: _density([network[layer]["kernel"]]) for layer in pruned},
            "hardened_error": error(hardened),
            "hardened_density": _density([hardened[layer]["kernel"] for layer in pruned]),
            "hardened_density_per_layer": {layer: _density([hardened[layer]["kernel"]]) for layer in pruned},
        }

    def labels(params: Params) -> dict[str, Any]:
        states = {layer: {name: name for name in state} for layer, state in params["method"].items()}
        return {"network": "network", "method": states}

    return Experiment(
        init=init,
        loss=loss,
        evaluate=evaluate,
        optimizer=optax.multi_transform({"network": optimizer.make(config)} | method.optimizers, labels),
        project=project,
        headline=(f"{data.prefix}_error", "train_density", "hardened_error"),
    )


def _validate_density(config: ml_collections.ConfigDict, data: Data) -> None:
    """Checks that each of the matrices that are pruned keeps an entry."""
    widths = [math.prod(data.train["image"].shape[1:]), *config.hidden, data.num_classes]
    size, layer = min((widths[layer - 1] * widths[layer], layer) for layer in config.prune_layers)
    allowed = f"at least {1 / size:.3g}, to keep one of the {size} weights of layer {layer}"
    require(num_kept(config.density, size) > 0, "density", config.density, allowed)


def _hardened(kernel: jax.Array, density: float) -> jax.Array:
    """`kernel` with its k entries of largest magnitude alone."""
    k = num_kept(density, kernel.size)
    return ops.hard_topk_mag(kernel.ravel(), k).reshape(kernel.shape)


def _density(kernels: list[jax.Array]) -> jax.Array:
    """The fraction of entries that are not zero."""
    nonzero = jnp.stack([jnp.count_nonzero(kernel) for kernel in kernels]).sum()
    return nonzero / sum(kernel.size for kernel in kernels)


RECIPE = Recipe("mnist_pruning", validate, build)
