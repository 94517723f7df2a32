"""The pruning experiment: a network, cross-entropy, and a method that prunes."""

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

import ops
from experiments.core.config import require
from experiments.core.input.dataset import Data
from experiments.core.training import optimizer
from experiments.core.training.experiment import Batch, Experiment, Metrics, Plan, Recipe
from experiments.mnist_pruning import methods, networks
from experiments.mnist_pruning.methods.method import over_rows
from experiments.mnist_pruning.methods.schedules import num_kept
from experiments.mnist_pruning.pools import Params as NetworkParams
from experiments.mnist_pruning.pools import Pools, forget

Params = dict[str, Any]  # {"network": NetworkParams, "method": {pool: State}}


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that the trainer does not know."""
    methods.validate(config)
    networks.validate(config)


def build(config: ml_collections.ConfigDict, data: Data) -> Experiment:
    """Returns the experiment for images and classes as `data` have them."""
    require(not data.is_multi_hot, "label", config.get("label", "label"), "a feature of one class an image")
    network = networks.NETWORKS[config.network].make(config, data)
    total_steps = Plan.of(config, data.num_train).total_steps
    pools = Pools(config.budget, network.pruned)
    vectors = jax.eval_shape(lambda key: pools.gather(network.init(key)), jax.random.key(0))
    _validate_density(config, {pool: vector.shape[-1] for pool, vector in vectors.items()})
    method = methods.METHODS[config.method].make(config, total_steps)
    method = over_rows(method) if pools.in_rows else method
    train_logits = network.train_logits or network.logits

    def init(key: jax.Array) -> Params:
        params = network.init(key)
        states = {pool: method.init(w, _key_of(pool, key)) for pool, w in pools.gather(params).items()}
        return {"network": params, "method": states}

    def effective(params: Params, progress: jax.Array, key: jax.Array | None = None) -> NetworkParams:
        """Returns the parameters of the forward pass, without a key those of its deterministic form."""
        vectors = pools.gather(params["network"])
        weights = {
            pool: method.weights(w, params["method"][pool], progress, None if key is None else _key_of(pool, key))
            for pool, w in vectors.items()
        }
        return pools.scatter(weights, params["network"])

    def harden(network: NetworkParams) -> NetworkParams:
        kept = {pool: _hardened(w, config.density) for pool, w in pools.gather(network).items()}
        return pools.scatter(kept, network)

    def loss(params: Params, batch: Batch, key: jax.Array, progress: jax.Array) -> tuple[jax.Array, Metrics]:
        scores = train_logits(effective(params, progress, key), batch["image"])
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
            opt_state = forget(opt_state, pools.kernels(masks))
        return {"network": pools.scatter(vectors, params["network"]), "method": states}, opt_state

    def evaluate(params: Params, examples: Batch, progress: jax.Array) -> Metrics:
        trained = effective(params, progress)
        hardened = harden(trained)
        images = network.prepare(examples["image"])

        def error(params: NetworkParams) -> jax.Array:
            wrong = network.logits(params, images).argmax(axis=-1) != examples["label"]
            return 100.0 * wrong.astype(jnp.float32)

        def per_example(value: jax.Array) -> jax.Array:
            """Repeats a value for each example: evaluation in batches only takes metrics of examples."""
            return jnp.broadcast_to(value, examples["label"].shape) if config.get("eval_batch_size") else value

        metrics: Metrics = {"error": error(trained), "hardened_error": error(hardened)}
        for name, weights in {"train": trained, "hardened": hardened}.items():
            kernels = pools.kernels(weights)
            metrics[f"{name}_density"] = per_example(_density(list(kernels.values())))
            metrics[f"{name}_density_per_layer"] = {
                layer: per_example(_density([kernel])) for layer, kernel in kernels.items()
            }
        return metrics

    def exported(params: Params) -> dict[str, Any]:
        network = effective(params, jnp.float32(1))
        return {"network": network, "hardened": harden(network), "trained": params}

    optimizers = {"network": optimizer.make(config, total_steps)} | method.optimizers
    labels = {"network": "network", "method": {pool: {name: name for name in method.optimizers} for pool in vectors}}
    return Experiment(
        init=init,
        loss=loss,
        evaluate=evaluate,
        optimizer=optax.multi_transform(optimizers, labels),
        after_update=after_update,
        augment=network.augment,
        flops_per_example=network.flops,
        headline=(f"{data.prefix}_error", "train_density", "hardened_error"),
        exported=exported,
    )


def _validate_density(config: ml_collections.ConfigDict, sizes: dict[str, int]) -> None:
    """Checks that each pruned vector keeps an entry; `sizes` are the lengths of the vectors by pool."""
    size, pool = min((size, pool) for pool, size in sizes.items())
    owner = {"network": "the network", "row": f"a unit of layer {pool}", "matrix": f"layer {pool}"}[config.budget]
    allowed = f"at least {1 / size:.3g}, to keep one of the {size} weights of {owner}"
    require(num_kept(config.density, size) > 0, "density", config.density, allowed)


def _key_of(pool: str, key: jax.Array) -> jax.Array:
    """Returns the key of a pool: by the layer's index if its name is numeric, else by the CRC of the name."""
    number = 0 if pool == "network" else int(pool) if pool.isdecimal() else zlib.crc32(pool.encode())
    return jax.random.fold_in(key, np.uint32(number))


def _hardened(vector: jax.Array, density: float) -> jax.Array:
    """Returns `vector` ([n] or [rows, n]) with 0 for all but its k entries of largest magnitude."""
    return ops.hard_topk_mag(vector, num_kept(density, vector.shape[-1]))


def _density(kernels: list[jax.Array]) -> jax.Array:
    """Returns the fraction of entries that are not 0."""
    nonzero = jnp.stack([jnp.count_nonzero(kernel) for kernel in kernels]).sum()
    return nonzero / sum(kernel.size for kernel in kernels)


RECIPE = Recipe("mnist_pruning", validate, build, kinds=methods.KINDS)
