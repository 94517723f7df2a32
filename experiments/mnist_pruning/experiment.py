"""The pruning experiment for the trainer: an MLP, cross-entropy, and a method that prunes."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import optax

import ops
from experiments.core.config import require, require_one_of, require_wholes
from experiments.core.input.dataset import Data
from experiments.core.training import optimizer
from experiments.core.training.experiment import Batch, Experiment, Metrics, Recipe
from experiments.core.training.plan import Plan
from experiments.mnist_pruning import methods
from experiments.mnist_pruning.conventions import INITIALISATIONS, INPUTS
from experiments.mnist_pruning.method import over_rows
from experiments.mnist_pruning.model import MLP
from experiments.mnist_pruning.model import Params as Network
from experiments.mnist_pruning.pools import Pools, forget
from experiments.mnist_pruning.schedules import num_kept

Params = dict[str, Any]  # {"network": Network, "method": {pool: State}}


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that the trainer knows nothing of."""
    methods.validate(config)
    require_one_of("inputs", config.inputs, INPUTS)
    require_one_of("initialisation", config.initialisation, INITIALISATIONS)
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
    model = MLP(config.hidden, data.num_classes, INITIALISATIONS[config.initialisation]())
    total_steps = Plan.of(config, data.num_train).total_steps
    pruned = [str(layer) for layer in config.prune_layers]
    pools = Pools(config.budget, pruned)
    _validate_density(config, data, pools)
    method = methods.METHODS[config.method].make(config, total_steps)
    method = over_rows(method) if pools.in_rows else method
    shift, scale = INPUTS[config.inputs](data)

    def inputs(images: jax.Array) -> jax.Array:
        """Vectors [B, D], scaled as the config has it, of images [B, H, W, C]."""
        return (images.reshape(images.shape[0], -1).astype(jnp.float32) - shift) / scale

    def logits(network: Network, images: jax.Array) -> jax.Array:
        return jnp.asarray(model.apply({"params": network}, inputs(images)))

    def init(key: jax.Array) -> Params:
        network = model.init(key, inputs(jnp.asarray(data.train["image"][:1])))["params"]
        states = {pool: method.init(w, _key_of(pool, key)) for pool, w in pools.gather(network).items()}
        return {"network": network, "method": states}

    def effective(params: Params, progress: jax.Array, key: jax.Array | None = None) -> Network:
        """The network of the forward pass; in its deterministic form without a key."""
        vectors = pools.gather(params["network"])
        weights = {
            pool: method.weights(w, params["method"][pool], progress, None if key is None else _key_of(pool, key))
            for pool, w in vectors.items()
        }
        return pools.scatter(weights, params["network"])

    def loss(params: Params, batch: Batch, key: jax.Array, progress: jax.Array) -> tuple[jax.Array, Metrics]:
        network = effective(params, progress, key)
        scores = logits(network, batch["image"])
        cross_entropy = optax.softmax_cross_entropy_with_integer_labels(scores, batch["label"]).mean()
        vectors = pools.gather(params["network"])
        penalty = sum(method.penalty(w, params["method"][pool], progress) for pool, w in vectors.items())
        return cross_entropy + penalty, {"loss": cross_entropy}

    def after_update(
        params: Params, opt_state: optax.OptState, gradient: Params, progress: jax.Array
    ) -> tuple[Params, optax.OptState]:
        gradients = pools.gather(gradient["network"])
        vectors, states = {}, {}
        for pool, w in pools.gather(params["network"]).items():
            vectors[pool], states[pool] = method.after_update(w, params["method"][pool], gradients[pool], progress)
        if method.active:
            masks = pools.scatter({pool: method.active(state) for pool, state in states.items()}, params["network"])
            opt_state = forget(opt_state, {layer: masks[layer]["kernel"] for layer in pruned})
        return {"network": pools.scatter(vectors, params["network"]), "method": states}, opt_state

    def evaluate(params: Params, examples: Batch, progress: jax.Array) -> Metrics:
        network = effective(params, progress)
        kept = {pool: _hardened(w, config.density) for pool, w in pools.gather(network).items()}
        hardened = pools.scatter(kept, network)

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
        states = {pool: {name: name for name in state} for pool, state in params["method"].items()}
        return {"network": "network", "method": states}

    return Experiment(
        init=init,
        loss=loss,
        evaluate=evaluate,
        optimizer=optax.multi_transform({"network": optimizer.make(config, total_steps)} | method.optimizers, labels),
        after_update=after_update,
        headline=(f"{data.prefix}_error", "train_density", "hardened_error"),
    )


def _validate_density(config: ml_collections.ConfigDict, data: Data, pools: Pools) -> None:
    """Checks that each vector that is pruned keeps an entry."""
    widths = [math.prod(data.train["image"].shape[1:]), *config.hidden, data.num_classes]
    size, pool = min((size, pool) for pool, size in pools.sizes(widths).items())
    of = "the network" if pool == "network" else f"a unit of layer {pool}" if pools.in_rows else f"layer {pool}"
    allowed = f"at least {1 / size:.3g}, to keep one of the {size} weights of {of}"
    require(num_kept(config.density, size) > 0, "density", config.density, allowed)


def _key_of(pool: str, key: jax.Array) -> jax.Array:
    return jax.random.fold_in(key, 0 if pool == "network" else int(pool))


def _hardened(vector: jax.Array, density: float) -> jax.Array:
    """`vector` ([n] or [rows, n]) with its k entries of largest magnitude alone."""
    return ops.hard_topk_mag(vector, num_kept(density, vector.shape[-1]))


def _density(kernels: list[jax.Array]) -> jax.Array:
    """The fraction of entries that are not zero."""
    nonzero = jnp.stack([jnp.count_nonzero(kernel) for kernel in kernels]).sum()
    return nonzero / sum(kernel.size for kernel in kernels)


RECIPE = Recipe("mnist_pruning", validate, build)
