"""The V-MoE experiment: a transformer with experts, sigmoid or softmax loss, and precision-at-1.

Consecutive images of a batch make a group, in training and in evaluation. Training skips the incomplete last batch of
an epoch. Copies of the last image fill up the last group of an evaluation; they compete for experts like the others,
and are not counted.
"""

import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from experiments.core.config import about, require, require_one_of, require_wholes
from experiments.core.input import dataset as data_lib
from experiments.core.input.dataset import Data
from experiments.core.record import hardware
from experiments.core.training import mesh, optimizer
from experiments.core.training.experiment import Batch, Experiment, Metrics, Params, Probe, Recipe
from experiments.vision import efficientnet_weights, features, networks, vit
from experiments.vision.networks import has_features, inputs_of
from experiments.vmoe import dispatch, layer, measures, model, outputs, routers
from experiments.vmoe.router_kinds import KINDS, ROUTERS, Shape

LOSSES = ("softmax", "sigmoid")


def routing_shape(config: ml_collections.ConfigDict) -> Shape:
    """Returns the sizes of the routing, by `config.router.k` or its factor, and `config.router.capacity`."""
    fields = config.router
    tokens = config.moe.group_images * model.tokens_per_image(
        make_model(config, 1, routers.HardExpertChoice(1)), inputs_of(config).side
    )
    k = fields.k
    if not k:
        # The factor as it is written: a float may lie above an integer.
        share = Fraction(str(fields.factor)) * tokens / config.moe.num_experts
        k = math.ceil(share / fields.multiple_of) * fields.multiple_of
    return Shape(tokens, k, fields.capacity or k)


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that the trainer does not know."""
    experts, fields = config.moe, config.router
    for name in ("num_experts", "group_images"):
        require(experts[name] > 0, f"moe.{name}", experts[name], "positive")
    require_one_of("moe.dispatcher", experts.dispatcher, dispatch.DISPATCHERS)
    require_one_of("router.name", fields.name, ROUTERS)
    require_one_of("router.score", fields.score, routers.SCORES)
    require_one_of("loss", config.loss, LOSSES)
    for name in ("k", "capacity"):
        require(fields[name] >= 0, f"router.{name}", fields[name], "positive, or 0")
    for name in ("factor", "multiple_of"):
        require(fields[name] > 0, f"router.{name}", fields[name], "positive")
    require(fields.noise >= 0, "router.noise", fields.noise, "at least 0")
    for kind in ROUTERS.values():
        kind.validate(fields)
    if has_features(config):
        features.validate(config)
        require_one_of("features.layer", config.features.layer, features.MAPS)
    network = make_model(config, 1, routers.HardExpertChoice(1))
    networks.validate(config, network)
    require_wholes(
        lambda blocks: len(set(blocks)) == len(blocks) and all(0 <= block < network.depth for block in blocks),
        "moe.blocks",
        experts.blocks,
        f"a tuple of different blocks, counted from 0 to {network.depth - 1}",
    )
    shape = routing_shape(config)
    most = f"at most the {shape.tokens} tokens of a group"
    require(shape.k <= shape.tokens, "router.k", shape.k, most)
    require(shape.capacity <= shape.tokens, "router.capacity", shape.capacity, most)
    ROUTERS[fields.name].validate_shape(fields, shape, experts.num_experts)
    _validate_groups(config)


def prepare(config: ml_collections.ConfigDict) -> None:
    """Requires an accelerator, unless the config does without one, and the weights for features."""
    if has_features(config):
        efficientnet_weights.PACKAGE.require_installed()
    network = f"{config.model.variant} in batches of {config.batch_size} images"
    data = f"{config.dataset} prepared in TFDS_DATA_DIR"
    hardware.require_accelerator(config, network, data, "make vmoe PRESET=tokens")


def load(config: ml_collections.ConfigDict) -> Data:
    """Loads the images, or their features."""
    return features.load(config) if has_features(config) else data_lib.load(config)


def _validate_groups(config: ml_collections.ConfigDict) -> None:
    """Checks that groups, experts and devices divide one another."""
    parts, images = mesh.batch_parts(config), config.moe.group_images
    microbatches = config.get("accumulate") or 1
    unit = images * parts * microbatches
    allowed = f"a multiple of {unit}: moe.group_images={images} times {parts} devices times accumulate={microbatches}"
    require(config.batch_size % unit == 0, "batch_size", config.batch_size, allowed)
    size = config.get("eval_batch_size")
    allowed = f"given, and a multiple of {images * parts}: moe.group_images={images} times {parts} devices"
    require(size is not None and size % (images * parts) == 0, "eval_batch_size", size, allowed)
    expert_parts = mesh.axis_sizes(config)["expert"]
    allowed = f"a multiple of the {expert_parts} parts of mesh.expert"
    require(config.moe.num_experts % expert_parts == 0, "moe.num_experts", config.moe.num_experts, allowed)


def make_router(config: ml_collections.ConfigDict, lam: Any) -> routers.RouterOrDense:
    """Returns the router of a config, relaxed at the strength `lam`."""
    return ROUTERS[config.router.name].make(config.router, routing_shape(config), lam)


def make_model(
    config: ml_collections.ConfigDict, num_classes: int, router: model.Routers, noise: float = 0.0
) -> vit.VisionTransformer:
    """Returns the network of a config with `router` in its layers of experts, or with a router for each by block."""
    options = networks.options(config)
    with about("model.variant", config.model.variant):
        return model.make(
            config.model.variant,
            num_classes,
            moe_blocks=config.moe.blocks,
            num_experts=config.moe.num_experts,
            router=router,
            group_images=config.moe.group_images,
            dispatcher=config.moe.dispatcher,
            noise=noise,
            **options,
        )


def build(config: ml_collections.ConfigDict, data: Data) -> Experiment:
    """Returns the experiment for images and classes as `data` have them."""
    side, augment, prepared, prepared_stored = inputs_of(config)
    channels = data.train["image"].shape[-1] if data.train else 3
    lam_of = optimizer.lam_schedule(config.router.lam, config.router.hard_after)
    group_images, prefix = config.moe.group_images, data.prefix
    precision, router_metrics = f"{prefix}_precision_at_1", f"{prefix}_router"

    def network(progress: jax.Array, noise: float) -> vit.VisionTransformer:
        return make_model(config, data.num_classes, make_router(config, lam_of(progress)), noise)

    def init(key: jax.Array) -> Params:
        # Each device needs a group; the values of parameters do not depend on their number.
        images = jnp.zeros((group_images * mesh.batch_parts(config), side, side, channels))
        return network(jnp.float32(0), 0.0).init(key, images)["params"]

    def loss(params: Params, batch: Batch, key: jax.Array, progress: jax.Array) -> tuple[jax.Array, Metrics]:
        noisy = network(progress, config.router.noise)
        output = outputs.apply(noisy, params, batch["image"], {layer.NOISE: key})
        value, auxiliary = _loss(config.loss, output.logits, batch["label"]).mean(), output.auxiliary.mean()
        metrics = {"loss": value, "router": jax.tree.map(jnp.mean, output.routing)}
        if ROUTERS[config.router.name].auxiliary:
            metrics["auxiliary"] = auxiliary
        return value + config.router.auxiliary * auxiliary, metrics

    def evaluate(params: Params, examples: Batch, progress: jax.Array) -> Metrics:
        output = outputs.apply(network(progress, 0.0), params, prepared(examples["image"]))
        labels = _multi_hot(output.logits, examples["label"])
        first = jax.nn.one_hot(output.logits.argmax(axis=1), labels.shape[1], dtype=labels.dtype)
        # A group counts for each of its images.
        routing = jax.tree.map(lambda values: jnp.repeat(values, group_images), output.routing)
        for block in output.assigned:
            # Joint frequencies of expert and class; `conclude` turns their mean into mutual information.
            routing[block]["specialisation"] = output.experts_of_images(block)[:, :, None] * labels[:, None]
        return {
            precision: 100.0 * (first * labels).sum(axis=1),
            f"{prefix}_loss": _loss(config.loss, output.logits, examples["label"]),
            router_metrics: routing,
            "error": 100.0 - 100.0 * (first * labels).sum(axis=1),  # chooses hyper-parameters
        }

    def conclude(means: Metrics) -> Metrics:
        concluded = {
            block: values | {"specialisation": measures.mutual_information(values["specialisation"])}
            for block, values in means[router_metrics].items()
        }
        return means | {router_metrics: concluded}

    def find(params: Params, progress: jax.Array) -> dict[str, jax.Array]:
        """Returns the experts of each token in the first group, by block."""
        numbers = np.arange(group_images * mesh.batch_parts(config)) % len(data.evaluation["image"])
        images = prepared_stored(jnp.asarray(data.evaluation["image"][numbers]))
        output = outputs.apply(network(progress, 0.0), params, images)
        return {block: assigned[0] for block, assigned in output.assigned.items()}

    def compare(before: dict[str, jax.Array], now: dict[str, jax.Array]) -> Metrics:
        return {f"{prefix}_stability": jax.tree.map(measures.stability, before, now)}

    shape, num_experts = routing_shape(config), config.moe.num_experts
    router = make_router(config, 0.0)
    slots = shape.tokens if config.moe.dispatcher == "dense" else shape.capacity
    slots = router.slots if isinstance(router, routers.Dense) else slots
    flops = model.forward_flops(
        network(jnp.float32(0), 0.0),
        side,
        channels,
        moe_blocks=len(config.moe.blocks),
        num_logits=router.num_logits(num_experts),
        slots_per_image=num_experts * slots / group_images,
    )
    return Experiment(
        init=init,
        loss=loss,
        evaluate=evaluate,
        optimizer=optimizer.make(config),
        augment=augment,
        flops_per_example=3.0 * flops,
        headline=(precision,),
        conclude=conclude,
        probe=Probe(find, compare) if data.evaluation else None,
    )


def _multi_hot(logits: jax.Array, labels: jax.Array) -> jax.Array:
    if labels.shape == logits.shape:
        return labels.astype(logits.dtype)
    return jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)


def _loss(name: str, logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Logits [B, n] and integer labels [B] or multi-hot labels [B, n] to losses [B]."""
    targets = _multi_hot(logits, labels)
    if name == "sigmoid":
        return optax.sigmoid_binary_cross_entropy(logits, targets).sum(axis=-1)
    # Several labels share the probability equally; an image without labels has loss 0.
    total = targets.sum(axis=-1, keepdims=True)
    return optax.softmax_cross_entropy(logits, targets / jnp.maximum(total, np.float32(1)))


RECIPE = Recipe("vmoe", validate, build, load, prepare, KINDS)
