"""The accuracy of a masked network whose norms, and whose head, fit the weights that are left.

Its statistics and its head are those of the whole network. Here the statistics are estimated again, without labels, by
a pass of the masked network over a fixed set of training images; then the head is trained again, with labels, as its
own run did. All masks, and no mask, have the same images in the same order.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax
from flax import linen as nn

from experiments.core.input.dataset import Data
from experiments.core.training import optimizer
from experiments.vision.efficientnet import EfficientNetLite0

IMAGES = 2048  # training images, for the statistics
_SEED = 0  # of their choice, and of the order in which the head sees images
_BLOCK = 1000  # images at once

Variables = dict[str, Any]
Moments = dict[str, tuple[Any, Any]]  # mean and variance [C] by the path of a norm; the latter with its epsilon


def accuracies(
    model: EfficientNetLite0, masked: Variables, whole: Variables, data: Data, of_head: ml_collections.ConfigDict
) -> dict[str, np.floating]:
    """Returns the percentage of the evaluated images that is right.

    Args:
      model: the network behind the maps of the data.
      masked: its variables with masked weights; the head is the `classifier`.
      whole: the same without a mask.
      data: maps [N, H, W, C] and labels [N].
      of_head: the config by which the head is trained again.

    Returns:
      By name: `own_norms`, with statistics of the masked network alone; `norms`, with those that restore moments of the
      whole network; `head`, with these and another head.
    """
    images, labels = data.train["image"], data.evaluation["label"]
    some = images[np.random.default_rng(_SEED).permutation(len(images))[:IMAGES]]
    head, right = masked["params"]["classifier"], {}
    for name, moments in {"own_norms": {}, "norms": moments_behind_norms(model, whole, some)}.items():
        masked = masked | {"batch_stats": reestimated(model, masked, some, moments)}
        features = _features(model, masked, data.evaluation["image"])
        right[name] = _logits(head, features).argmax(axis=-1) == labels
    other = trained_head(_features(model, masked, images), data.train["label"], data.num_classes, of_head)
    right["head"] = _logits(other, features).argmax(axis=-1) == labels
    return {name: np.float32(100.0 * np.mean(value)) for name, value in right.items()}


@functools.partial(jax.jit, static_argnums=0)
def moments_behind_norms(model: EfficientNetLite0, variables: Variables, maps: jax.Array) -> Moments:
    """Returns the moments over maps [N, H, W, C] of all channels behind each norm, before its scale and bias."""
    moments = {}

    def record(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if isinstance(norm := context.module, nn.BatchNorm):
            mean, variance = _moments(args[0])
            statistics, squared = norm.variables["batch_stats"], norm.variables["batch_stats"]["var"] + norm.epsilon
            ratio = (variance + norm.epsilon) / squared
            moments["/".join(norm.path)] = (mean - statistics["mean"]) / jnp.sqrt(squared), ratio
        return call(*args, **kwargs)

    with nn.intercept_methods(record):
        model.apply(variables, maps.astype(jnp.float32))
    return moments


@functools.partial(jax.jit, static_argnums=0)
def reestimated(model: EfficientNetLite0, variables: Variables, maps: jax.Array, moments: Moments) -> Any:
    """Returns the statistics of all norms by which channels have `moments` over maps [N, H, W, C] behind them.

    Without moments they are 0 and 1: a forward pass with batch statistics. It takes all maps as one batch, so that a
    norm sees what those in front of it make with their new statistics.
    """

    def estimate(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if isinstance(norm := context.module, nn.BatchNorm):
            mean, variance = _moments(args[0])
            shift, ratio = moments.get("/".join(norm.path), (0.0, 1.0))
            squared = (variance + norm.epsilon) / ratio
            norm.put_variable("batch_stats", "mean", mean - shift * jnp.sqrt(squared))
            norm.put_variable("batch_stats", "var", squared - norm.epsilon)
        return call(*args, **kwargs)

    with nn.intercept_methods(estimate):
        _, updated = model.apply(variables, maps.astype(jnp.float32), mutable="batch_stats")
    return updated["batch_stats"]


def _moments(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    places = x.reshape(-1, x.shape[-1])
    return places.mean(axis=0), places.var(axis=0)


def trained_head(features: np.ndarray, labels: np.ndarray, num_classes: int, config: ml_collections.ConfigDict) -> Any:
    """Trains a linear head on features [N, D], from zeros, by the steps, the batches and the optimizer of a config."""
    transformation = optimizer.make(config)
    rng, size = np.random.default_rng(_SEED), config.steps * config.batch_size
    order = np.concatenate([rng.permutation(len(labels)) for _ in range(-(-size // len(labels)))])[:size]

    def step(state: Any, batch: jax.Array) -> Any:
        def loss(head: Any) -> jax.Array:
            logits = _logits(head, inputs[batch])
            return optax.softmax_cross_entropy_with_integer_labels(logits, classes[batch]).mean()

        head, memory = state
        updates, memory = transformation.update(jax.grad(loss)(head), memory, head)
        return (optax.apply_updates(head, updates), memory), None

    head = {"kernel": jnp.zeros((features.shape[1], num_classes)), "bias": jnp.zeros(num_classes)}
    inputs, classes = jnp.asarray(features), jnp.asarray(labels)
    batches = jnp.asarray(order.reshape(config.steps, config.batch_size))
    with jax.numpy_dtype_promotion("standard"):  # for optax's schedules
        return jax.lax.scan(step, (head, transformation.init(head)), batches)[0][0]


def _logits(head: Any, features: Any) -> Any:
    return features @ head["kernel"] + head["bias"][None]


@functools.partial(jax.jit, static_argnums=0)
def _pooled(model: EfficientNetLite0, variables: Variables, maps: jax.Array) -> jax.Array:
    outputs: Any = model.apply(variables, maps.astype(jnp.float32))
    return outputs.pooled


def _features(model: EfficientNetLite0, variables: Variables, maps: np.ndarray) -> np.ndarray:
    """Returns what the head sees of maps [N, H, W, C]: [N, 1280]."""
    blocks = (maps[at : at + _BLOCK] for at in range(0, len(maps), _BLOCK))
    return np.concatenate([_pooled(model, variables, block) for block in blocks])
