"""The V-MoE experiment for the trainer: a transformer with experts, sigmoid or softmax loss, precision-at-1."""

import math
import re
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from experiments.core.config import about, require, require_one_of, require_wholes
from experiments.core.input.dataset import Data
from experiments.core.record import hardware
from experiments.core.training import mesh, optimizer, schedules
from experiments.core.training.experiment import Batch, Experiment, Metrics, Params, Recipe
from experiments.vision import model_fields, vit
from experiments.vision.from_images import augment_and_prepare
from experiments.vmoe import dispatch, layer, model, routers
from experiments.vmoe.router_kinds import ROUTERS, Shape

LOSSES = ("softmax", "sigmoid")


def routing_shape(config: ml_collections.ConfigDict) -> Shape:
    """What `config.router.k`, or its factor, and `config.router.capacity` come to."""
    fields = config.router
    tokens = config.moe.group_images * model.tokens_per_image(
        _model(config, 1, routers.HardExpertChoice(1)), config.input.size
    )
    k = fields.k
    if not k:
        # In fractions of the decimal number as written: the float next to it may be above an integer.
        share = Fraction(str(fields.factor)) * tokens / config.moe.num_experts
        k = math.ceil(share / fields.multiple_of) * fields.multiple_of
    return Shape(tokens, k, tokens if ROUTERS[fields.name].unbounded else fields.capacity or k)


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that the trainer knows nothing of."""
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
    network = _model(config, 1, routers.HardExpertChoice(1))
    model_fields.validate(config, network)
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
    """Asks for accelerators, unless the config does without."""
    network = f"{config.model.variant} in batches of {config.batch_size} images"
    hardware.require_accelerator(config, network, f"{config.dataset} prepared in TFDS_DATA_DIR", "make vmoe-small")


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
    of_mesh = mesh.axis_sizes(config)["expert"]
    allowed = f"a multiple of the {of_mesh} parts of mesh.expert"
    require(config.moe.num_experts % of_mesh == 0, "moe.num_experts", config.moe.num_experts, allowed)


def make_router(config: ml_collections.ConfigDict, lam: Any) -> routers.RouterOrDense:
    """The router of a config, relaxed at the strength `lam`."""
    return ROUTERS[config.router.name].make(config.router, routing_shape(config), lam)


def _model(
    config: ml_collections.ConfigDict, num_classes: int, router: routers.RouterOrDense, noise: float = 0.0
) -> vit.VisionTransformer:
    options = model_fields.options(config)
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
    """The experiment on images with the number of channels and of classes that `data` have."""
    size = config.input.size
    augmented, prepared = augment_and_prepare(config)
    channels = data.train["image"].shape[-1] if data.train else 3
    lam_of = schedules.lam_schedule(config.router.lam, config.router.hard_after)
    name = f"{data.prefix}_precision_at_1"

    def network(progress: jax.Array, noise: float) -> vit.VisionTransformer:
        return _model(config, data.num_classes, make_router(config, lam_of(progress)), noise)

    def init(key: jax.Array) -> Params:
        # A group for every device; the values of parameters do not depend on it.
        images = jnp.zeros((config.moe.group_images * mesh.batch_parts(config), size, size, channels))
        return network(jnp.float32(0), 0.0).init(key, images)["params"]

    def loss(params: Params, batch: Batch, key: jax.Array, progress: jax.Array) -> tuple[jax.Array, Metrics]:
        logits, routing, auxiliary = _apply(
            network(progress, config.router.noise), params, batch["image"], {layer.NOISE: key}
        )
        value = _loss(config.loss, logits, batch["label"]).mean()
        metrics = {"loss": value, "router": jax.tree.map(jnp.mean, routing)}
        if ROUTERS[config.router.name].auxiliary:
            metrics["auxiliary"] = auxiliary.mean()
        return value + config.router.auxiliary * auxiliary.mean(), metrics

    def evaluate(params: Params, examples: Batch, progress: jax.Array) -> Metrics:
        logits, routing, _ = _apply(network(progress, 0.0), params, prepared(examples["image"]), {})
        labels = _multi_hot(logits, examples["label"])
        first = jax.nn.one_hot(logits.argmax(axis=1), logits.shape[1], dtype=logits.dtype)
        # A group counts for each of its images.
        per_image = jax.tree.map(lambda values: jnp.repeat(values, config.moe.group_images), routing)
        return {
            name: 100.0 * (first * labels).sum(axis=1),
            f"{data.prefix}_loss": _loss(config.loss, logits, examples["label"]),
            f"{data.prefix}_router": per_image,
            "error": 100.0 - 100.0 * (first * labels).sum(axis=1),  # to choose hyper-parameters by
        }

    shape, num_experts = routing_shape(config), config.moe.num_experts
    slots = shape.tokens if config.moe.dispatcher == "dense" else shape.capacity
    flops = model.forward_flops(
        network(jnp.float32(0), 0.0),
        size,
        channels,
        moe_blocks=len(config.moe.blocks),
        num_logits=make_router(config, 0.0).num_logits(num_experts),
        slots_per_image=num_experts * slots / config.moe.group_images,
    )
    return Experiment(
        init=init,
        loss=loss,
        evaluate=evaluate,
        optimizer=optimizer.make(config),
        augment=augmented,
        flops_per_example=3.0 * flops,
        headline=(name,),
    )


def _apply(
    network: vit.VisionTransformer, params: Params, images: jax.Array, rngs: dict[str, jax.Array]
) -> tuple[jax.Array, dict[str, dict[str, jax.Array]], jax.Array]:
    """Logits, the metrics [G] of every layer of experts by its block, and the sum of the auxiliary losses [G]."""
    logits, sown = network.apply({"params": params}, images, rngs=rngs, mutable=[layer.ROUTING, layer.AUXILIARY])
    blocks = sown.get(layer.ROUTING, {}).get("Transformer", {})
    routing = {f"block_{re.sub(r'[^0-9]', '', name)}": next(iter(sown.values())) for name, sown in blocks.items()}
    losses = jax.tree.leaves(sown.get(layer.AUXILIARY, {}))
    return logits, routing, sum(losses, jnp.zeros_like(losses[0])) if losses else jnp.zeros(1)


def _multi_hot(logits: jax.Array, labels: jax.Array) -> jax.Array:
    if labels.shape == logits.shape:
        return labels.astype(logits.dtype)
    return jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)


def _loss(name: str, logits: jax.Array, labels: jax.Array) -> jax.Array:
    """[B] of logits [B, n] and integer labels [B] or multi-hot ones [B, n]."""
    targets = _multi_hot(logits, labels)
    if name == "sigmoid":
        return optax.sigmoid_binary_cross_entropy(logits, targets).sum(axis=-1)
    # Of several labels each is as likely; an image without any has no part.
    total = targets.sum(axis=-1, keepdims=True)
    return optax.softmax_cross_entropy(logits, targets / jnp.maximum(total, np.float32(1)))


RECIPE = Recipe("vmoe", validate, build, prepare=prepare)
