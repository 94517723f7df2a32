"""The networks that are fine-tuned: a vision transformer, and EfficientNet-Lite0 in whole or in part.

The config decides:

    config.model                                  the transformer that its fields describe (`vision/networks.py`), with
                                                  the weights that config.pretrained names
    config.features, layer="pooled" or "maps"     a linear head on features of the frozen network
                     layer="before_last_block"    the last block and the head, on features before it
    config.network="efficientnet_lite0"           the whole network, from images

The statistics of norms are always those of ImageNet.
"""

from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from experiments.core.config import about
from experiments.core.input.dataset import Data
from experiments.core.training.experiment import Params
from experiments.vision import dinov2, efficientnet, efficientnet_weights
from experiments.vision.efficientnet import BEFORE_LAST_BLOCK, LAST_BLOCK, EfficientNetLite0, Head
from experiments.vision.networks import Network, has_features, inputs_of, transformer
from experiments.vision.pretrained import load_pretrained


def is_convolutional(config: ml_collections.ConfigDict) -> bool:
    """Returns whether the whole of EfficientNet-Lite0 is trained, from images."""
    return config.get("network") is not None


def make(config: ml_collections.ConfigDict, data: Data) -> Network:
    """Returns the network of a valid config, for images or features as `data` have them."""
    if is_convolutional(config):
        return _whole(config, data)
    if not has_features(config):
        return _transformer(config, data)
    return _last_block(data) if config.features.layer == BEFORE_LAST_BLOCK else _head(data)


def _transformer(config: ml_collections.ConfigDict, data: Data) -> Network:
    """Returns the transformer; pretrained weights are loaded for all of it except the head, which starts from 0."""
    network = transformer(config, data)
    logits_of = network.logits
    if not config.pretrained:
        return network
    with about("pretrained", config.pretrained):
        shapes = jax.eval_shape(network.init, jax.random.key(0))
        network = network._replace(pretrained=load_pretrained(config.pretrained, shapes))
    if config.pretrained != dinov2.NAME:
        return network
    return network._replace(logits=lambda params, images: logits_of(params, dinov2.standardised(images)))


def _head(data: Data) -> Network:
    """Returns a linear head that starts from 0, so that seeds differ only in the order of the examples."""
    width = data.train["image"].shape[-1]
    model = Head(data.num_classes)

    def init(key: jax.Array) -> Params:
        return model.init(key, jnp.zeros((1, width)))["params"]

    def logits(params: Params, examples: jax.Array) -> jax.Array:
        return jnp.asarray(model.apply({"params": params}, examples))

    # The forward pass, and the backward pass to the parameters only: nothing in front of the head is trained.
    return Network(init, logits, flops=4.0 * width * data.num_classes)


def _last_block(data: Data) -> Network:
    """Returns the last block, the convolution behind it, and a head that starts from 0."""
    model = EfficientNetLite0(data.num_classes, first_block=LAST_BLOCK)
    network = _convolutional(model, data.train["image"].shape[1:])
    return network._replace(logits=lambda params, features: network.logits(params, features.astype(jnp.float32)))


def _whole(config: ml_collections.ConfigDict, data: Data) -> Network:
    size, augmented, prepared, _ = inputs_of(config)
    network = _convolutional(EfficientNetLite0(data.num_classes), (size, size, 3))
    return network._replace(
        logits=lambda params, images: network.logits(
            params, efficientnet.from_normalised(efficientnet.in_colour(images))
        ),
        augment=augmented,
        prepare=prepared,
    )


def _convolutional(model: EfficientNetLite0, shape: tuple[int, ...]) -> Network:
    """Returns the network of `model` with ImageNet's weights and statistics, and a classifier that starts from 0."""
    weights = efficientnet_weights.load()

    def init(key: jax.Array) -> Params:
        return model.init(key, jnp.zeros((1, *shape)))["params"]

    kept = jax.eval_shape(init, jax.random.key(0)).keys() - {"classifier"}
    statistics = {name: part for name, part in weights["batch_stats"].items() if name in kept}

    def logits(params: Params, x: jax.Array) -> jax.Array:
        outputs: Any = model.apply({"params": params, "batch_stats": statistics}, x)
        return outputs.logits

    pretrained = {name: part for name, part in weights["params"].items() if name in kept}
    return Network(init, logits, pretrained=pretrained)
