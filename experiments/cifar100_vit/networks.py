"""The networks that are fine-tuned: a vision transformer, and EfficientNet-Lite0 in whole or in part.

Which one it is follows from the config:

    config.model                                  the transformer that its fields describe (`vision/model_fields.py`)
    config.features, layer="pooled" or "maps"     a linear head on features of the frozen network
                     layer="before_last_block"    what comes after them: the last block and the head
    config.network="efficientnet_lite0"           all of it, from images

Statistics of norms stay those of ImageNet wherever weights do not.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from experiments.core.config import about
from experiments.core.input.dataset import Data
from experiments.core.training.experiment import Params
from experiments.vision import efficientnet, efficientnet_weights, filters, inputs, model_fields, vit
from experiments.vision.efficientnet import BEFORE_LAST_BLOCK, LAST_BLOCK, EfficientNetLite0, Head
from experiments.vision.inputs import has_features
from experiments.vision.pretrained import load_pretrained


class Network(NamedTuple):
    """The network to train, for examples whose `image` is an image or its features.

    Attributes:
      init: makes the parameters.
      logits: of the parameters and what `augment` or `prepare` returns.
      augment: of a key and the images of a training batch; None: they are taken as they are.
      prepare: of images to evaluate on.
      flops: of a training step per example; None: to be counted.
      pretrained: makes parameters to start from, a part of the tree; None: there are none.
      pictures: of the parameters, images as `Experiment.pictures`; None: there are none.
    """

    init: Callable[[jax.Array], Params]
    logits: Callable[[Params, jax.Array], jax.Array]
    augment: Callable[[jax.Array, jax.Array], jax.Array] | None
    prepare: Callable[[jax.Array], jax.Array]
    flops: float | None = None
    pretrained: Params | None = None
    pictures: Callable[[Params], dict[str, jax.Array]] | None = None


def is_convolutional(config: ml_collections.ConfigDict) -> bool:
    """Whether EfficientNet-Lite0 is trained from images on."""
    return config.get("network") is not None


def make(config: ml_collections.ConfigDict, data: Data) -> Network:
    """The network of a valid config, for images or features as `data` have them."""
    if is_convolutional(config):
        return _whole(config, data)
    if not has_features(config):
        return _transformer(config, data)
    return _last_block(data) if config.features.layer == BEFORE_LAST_BLOCK else _head(data)


def make_transformer(config: ml_collections.ConfigDict, num_classes: int) -> vit.VisionTransformer:
    """The transformer of a config."""
    return model_fields.make(config, num_classes, scan=config.model.scan)


def _transformer(config: ml_collections.ConfigDict, data: Data) -> Network:
    size, augmented, prepared, _ = inputs.of(config)
    model = make_transformer(config, data.num_classes)
    channels = data.train["image"].shape[-1] if data.train else 3

    def init(key: jax.Array) -> Params:
        return model.init(key, jnp.zeros((1, size, size, channels)))["params"]

    def logits(params: Params, images: jax.Array) -> jax.Array:
        return jnp.asarray(model.apply({"params": params}, images))

    return Network(
        init,
        logits,
        augmented,
        prepared,
        flops=3.0 * vit.forward_flops(model, size, channels),
        pretrained=_body(config, init) if config.pretrained else None,
        pictures=filters.of_patches,
    )


def _body(config: ml_collections.ConfigDict, init: Any) -> Params:
    """The pretrained parameters, without a head: that is the network's own, which starts from zero."""
    with about("pretrained", config.pretrained):
        return load_pretrained(config.pretrained, jax.eval_shape(init, jax.random.key(0)))


def _head(data: Data) -> Network:
    """Zeros to begin with: what a seed changes is the order of the examples alone."""
    width = data.train["image"].shape[-1]
    model = Head(data.num_classes)

    def init(key: jax.Array) -> Params:
        return model.init(key, jnp.zeros((1, width)))["params"]

    def logits(params: Params, examples: jax.Array) -> jax.Array:
        return jnp.asarray(model.apply({"params": params}, examples))

    # Forward, and backward to the parameters alone: nothing in front of them is trained.
    return Network(init, logits, None, lambda examples: examples, flops=4.0 * width * data.num_classes)


def _last_block(data: Data) -> Network:
    """The last block, the convolution behind it and a head of zeros."""
    model = EfficientNetLite0(data.num_classes, first_block=LAST_BLOCK)
    network = _convolutional(model, data.train["image"].shape[1:])
    return network._replace(
        logits=lambda params, features: network.logits(params, features.astype(jnp.float32)),
        prepare=lambda features: features,
    )


def _whole(config: ml_collections.ConfigDict, data: Data) -> Network:
    size, augmented, prepared, _ = inputs.of(config)
    network = _convolutional(EfficientNetLite0(data.num_classes), (size, size, 3))
    return network._replace(
        logits=lambda params, images: network.logits(
            params, efficientnet.from_normalised(efficientnet.in_colour(images))
        ),
        augment=augmented,
        prepare=prepared,
    )


def _convolutional(model: EfficientNetLite0, shape: tuple[int, ...]) -> Network:
    """With ImageNet's weights, but for a classifier of zeros; its norms have ImageNet's statistics."""
    weights = efficientnet_weights.load()

    def init(key: jax.Array) -> Params:
        return model.init(key, jnp.zeros((1, *shape)))["params"]

    kept = jax.eval_shape(init, jax.random.key(0)).keys() - {"classifier"}
    statistics = {name: part for name, part in weights["batch_stats"].items() if name in kept}

    def logits(params: Params, x: jax.Array) -> jax.Array:
        outputs: Any = model.apply({"params": params, "batch_stats": statistics}, x)
        return outputs.logits

    pretrained = {name: part for name, part in weights["params"].items() if name in kept}
    return Network(init, logits, None, lambda x: x, pretrained=pretrained)
