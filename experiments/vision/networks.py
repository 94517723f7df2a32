"""The networks that experiments train, their inputs, and the transformer that a config describes.

config.input.size      the side of the images in pixels; core/input/pipeline.py has the other fields of config.input.
                       With config.features (features.py) instead, the transformer sees the maps of a frozen network
config.model.variant   a size, a slash, and the patch size in pixels, or in places of a map
            .width, .depth, .mlp_dim, .num_heads   0 for the variant's own
            .pool      tok or gap
            .dtype     the type of the computation: float32 or bfloat16
            .remat     whether the backward pass computes activations again: True or all, False or none, or
                       cheap, those that cost little
            .scan      whether blocks are one loop; may be left out
            .gelu      tanh or exact; may be left out, and is tanh then
            .attention xla, or cudnn on GPUs, in bfloat16; may be left out, and is xla then
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from experiments.core.config import about, require, require_one_of
from experiments.core.input import augment
from experiments.core.input.dataset import Data
from experiments.core.training.experiment import Params
from experiments.vision import features, vit

DTYPES = ("float32", "bfloat16")
# The largest allowed sizes; whether such a network fits in memory shows in training.
SIZES = {"width": 2**17, "depth": 1000, "mlp_dim": 2**19, "num_heads": 2**17}


class Inputs(NamedTuple):
    """The way from `image` of a batch to the input of a network, float32 [B, side, side, C].

    Attributes:
      side: the side of the input in pixels, or in places of a map.
      augment: takes a key and the images of a training batch.
      prepare: takes images to evaluate on, which a stream may have resized.
      prepare_stored: takes images to evaluate on as the data set stores them.
    """

    side: int
    augment: Callable[[jax.Array, jax.Array], jax.Array]
    prepare: Callable[[jax.Array], jax.Array]
    prepare_stored: Callable[[jax.Array], jax.Array]


class Network(NamedTuple):
    """A network to train, for examples whose `image` is an image or its features.

    Attributes:
      init: makes the parameters, given a key.
      logits: takes the parameters, and images as `augment` or `prepare` returns them.
      augment: takes a key and the images of a training batch; None: images stay as they are.
      prepare: takes images to evaluate on.
      flops: operations of a training step per example; None: unknown, and no row has a share of the peak.
      pretrained: parameters to start from, a part of the tree; None: there are none.
      pruned: the layers whose kernels may be pruned; each is named by its keys in the parameters, joined by dots.
      train_logits: as `logits`, in training; None: they are the same.
    """

    init: Callable[[jax.Array], Params]
    logits: Callable[[Params, jax.Array], jax.Array]
    augment: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    prepare: Callable[[jax.Array], jax.Array] = lambda images: images
    flops: float | None = None
    pretrained: Params | None = None
    pruned: Sequence[str] = ()
    train_logits: Callable[[Params, jax.Array], jax.Array] | None = None


def has_features(config: ml_collections.ConfigDict) -> bool:
    """Returns whether the network is trained on features, which do not change."""
    return config.get("features") is not None


def inputs_of(config: ml_collections.ConfigDict) -> Inputs:
    """Returns the inputs of a config: images as floats in [-1, 1], or maps as float32."""
    if has_features(config):
        return Inputs(
            config.features.size // features.pixels_per_place(config),
            lambda key, maps: _as_floats(maps),
            _as_floats,
            _as_floats,
        )
    size, recipe = config.input.size, config.input.recipe
    if config.input.augment_on == "host":
        resized = functools.partial(augment.resize, size=size)
        return Inputs(size, lambda key, images: augment.normalise(images), augment.normalise, resized)

    def evaluated(images: jax.Array) -> jax.Array:
        return augment.EVALUATION[recipe](images, size)

    return Inputs(size, lambda key, images: augment.TRAIN[recipe](key, images, size), evaluated, evaluated)


def _as_floats(maps: jax.Array) -> jax.Array:
    return maps.astype(jnp.float32)


def transformer(config: ml_collections.ConfigDict, data: Data, **further: Any) -> Network:
    """Returns the network of `make`, from scratch, for images as `data` have them."""
    size, augment, prepare, _ = inputs_of(config)
    model = make(config, data.num_classes, **further)
    channels = data.train["image"].shape[-1] if data.train else 3

    def init(key: jax.Array) -> Params:
        return model.init(key, jnp.zeros((1, size, size, channels)))["params"]

    def logits(params: Params, images: jax.Array) -> jax.Array:
        return jnp.asarray(model.apply({"params": params}, images))

    flops = 3.0 * vit.forward_flops(model, size, channels)
    return Network(init, logits, augment, prepare, flops)


def options(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """Returns the fields of `vit.VisionTransformer` that a config sets; sizes of 0 are left to the variant.

    Raises:
      UsageError: a value is not allowed.
    """
    fields = config.model
    require_one_of("model.pool", fields.pool, vit.POOLS)
    require_one_of("model.dtype", fields.dtype, DTYPES)
    for name, most in SIZES.items():
        allowed = f"positive and at most {most}, or 0 for that of the variant"
        require(0 <= fields[name] <= most, f"model.{name}", fields[name], allowed)
    require(fields.remat in vit.REMATS, "model.remat", fields.remat, "True, False, all, cheap or none")
    require_one_of("model.gelu", fields.get("gelu", "tanh"), vit.GELUS)
    attention = fields.get("attention", "xla")
    require_one_of("model.attention", attention, vit.ATTENTIONS)
    fused = attention == "cudnn" and fields.dtype != "bfloat16"
    require(not fused, "model.attention", attention, "xla, except in bfloat16")
    optional = ("pool", "remat", "scan", "gelu", "attention")
    overrides = {name: fields[name] for name in (*SIZES, *optional) if fields.get(name)}
    return overrides | {"dtype": jnp.dtype(fields.dtype)}


def make(config: ml_collections.ConfigDict, num_classes: int, **further: Any) -> vit.VisionTransformer:
    """Returns the transformer of a config, with `further` fields of `vit.VisionTransformer`.

    Raises:
      UsageError: a value is not allowed.
    """
    fields = options(config) | further
    with about("model.variant", config.model.variant):
        return vit.make(config.model.variant, num_classes, **fields)


def validate(config: ml_collections.ConfigDict, model: vit.VisionTransformer | None = None) -> None:
    """Checks the fields by themselves and together; by default `model`, which they make, is that of `make`."""
    model = model or make(config, num_classes=1)
    require(
        model.width % model.num_heads == 0, "model.num_heads", model.num_heads, f"a divisor of the width {model.width}"
    )
    field, unit, allowed = "input", model.patch_size, f"a multiple of the patch size {model.patch_size}"
    if has_features(config):
        pixels = features.pixels_per_place(config)
        field, unit = "features", pixels * model.patch_size
        allowed = f"a multiple of {unit}: {pixels} pixels for a place, patch size {model.patch_size}"
    require(config[field].size % unit == 0, f"{field}.size", config[field].size, allowed)
