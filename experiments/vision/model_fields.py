"""The fields of a config that say what the transformer is, in every experiment that has one.

config.input.size      side of the images in pixels; or, in its place, config.features.size: the transformer sees maps
config.model.variant   a size, a slash, and the patch size in pixels, or in places of a map
            .width, .depth, .mlp_dim, .num_heads   0 for that of the variant
            .pool      tok or gap
            .dtype     of the computation: float32 or bfloat16
            .remat
"""

from typing import Any

import jax.numpy as jnp
import ml_collections

from experiments.core.config import about, require, require_one_of
from experiments.vision import features, vit
from experiments.vision.inputs import has_features

DTYPES = ("float32", "bfloat16")
# What the sizes may be at most; whether the network then fits in memory is for the trainer to say.
SIZES = {"width": 2**17, "depth": 1000, "mlp_dim": 2**19, "num_heads": 2**17}


def options(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """The fields of `vit.VisionTransformer` that a config gives, the sizes that are not 0 among them.

    Raises:
      UsageError: a field is not allowed.
    """
    fields = config.model
    require_one_of("model.pool", fields.pool, vit.POOLS)
    require_one_of("model.dtype", fields.dtype, DTYPES)
    for name, most in SIZES.items():
        allowed = f"positive and at most {most}, or 0 for that of the variant"
        require(0 <= fields[name] <= most, f"model.{name}", fields[name], allowed)
    sizes = {name: fields[name] for name in SIZES if fields[name]}
    return {"pool": fields.pool, "dtype": jnp.dtype(fields.dtype), "remat": fields.remat} | sizes


def make(config: ml_collections.ConfigDict, num_classes: int, **further: Any) -> vit.VisionTransformer:
    """The transformer of a config; `further` are fields of it that not all experiments have.

    Raises:
      UsageError: a field is not allowed.
    """
    fields = options(config) | further
    with about("model.variant", config.model.variant):
        return vit.make(config.model.variant, num_classes, **fields)


def validate(config: ml_collections.ConfigDict, model: vit.VisionTransformer) -> None:
    """Checks what the fields must be to one another in the `model` they make."""
    require(
        model.width % model.num_heads == 0, "model.num_heads", model.num_heads, f"a divisor of the width {model.width}"
    )
    field, unit, allowed = "input", model.patch_size, f"a multiple of the patch size {model.patch_size}"
    if has_features(config):
        pixels = features.place(config)
        field, unit = "features", pixels * model.patch_size
        allowed = f"a multiple of {unit}: {pixels} pixels for a place, patch size {model.patch_size}"
    require(config[field].size % unit == 0, f"{field}.size", config[field].size, allowed)
