"""Files of random weights in the public layouts, where the real ones are not available.

Names and shapes are those of the real files (`pretrained.py` says which); the values are those of a fresh network, so
that training steps from them are finite and of the usual size, and accuracies those of chance.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from experiments.vision import vit

Shapes = dict[str, tuple[int, ...]]

# The parts of a block: attention, second norm and MLP.
_NUMBERED_THROUGH = ("MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3")
_NUMBERED_BY_KIND = ("MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")


def shapes(
    layout: str,
    variant: str,
    *,
    image_size: int = 224,
    num_classes: int = 21843,
    depth: int | None = None,
    pool: str = "tok",
    scan: bool = False,
    prefix: str = "",
) -> Shapes:
    """The keys of a file, and the shapes of the arrays under them.

    Args:
      layout: "original", "augreg" or "big_vision".
      variant: the network: "B/16".
      image_size: side of the images in pixels, a multiple of the patch size.
      num_classes: of the head.
      depth: number of blocks. None: that of the variant.
      pool: "tok", with a class token, or "gap", without. Of the public files, only those of big_vision can be without.
      scan: whether the blocks are one; in the layout of big_vision only.
      prefix: of all keys, for example "params/".
    """
    model = vit.make(variant, num_classes)
    width, patch, depth = model.width, model.patch_size, depth or model.depth
    num_patches = (image_size // patch) ** 2

    result: Shapes = {"embedding/kernel": (patch, patch, 3, width), "embedding/bias": (width,)}
    if layout == "big_vision":
        result["pos_embedding"] = (1, num_patches, width)
    else:
        result["Transformer/posembed_input/pos_embedding"] = (1, 1 + num_patches, width)
    if pool == "tok":
        result["cls"] = (1, 1, width)
    block = _block(model, _NUMBERED_BY_KIND if layout == "big_vision" else _NUMBERED_THROUGH)
    for name, shape in block.items():
        if scan:
            result[f"Transformer/encoderblock/{name}"] = (depth, *shape)
        else:
            result |= {f"Transformer/encoderblock_{number}/{name}": shape for number in range(depth)}
    result |= {f"Transformer/encoder_norm/{part}": (width,) for part in ("scale", "bias")}
    if layout == "original":
        result |= {"pre_logits/kernel": (width, width), "pre_logits/bias": (width,)}
    result |= {"head/kernel": (width, num_classes), "head/bias": (num_classes,)}
    return {prefix + name: shape for name, shape in result.items()}


def stacked(params: dict[str, np.ndarray], depth: int) -> dict[str, np.ndarray]:
    """The same parameters with scanned blocks."""
    first = [name for name in params if "/encoderblock_0/" in name]
    blocks = {
        name.replace("_0/", "/", 1): np.stack([params[name.replace("_0/", f"_{i}/", 1)] for i in range(depth)])
        for name in first
    }
    return without(params, "/encoderblock_") | blocks


def without(arrays: dict[str, np.ndarray], *parts: str) -> dict[str, np.ndarray]:
    """The arrays whose names have none of the parts."""
    return {name: array for name, array in arrays.items() if not any(part in name for part in parts)}


def _block(model: vit.VisionTransformer, parts: tuple[str, str, str]) -> Shapes:
    attention, second_norm, mlp = parts
    width, heads = model.width, model.num_heads
    inner = width // heads
    result: Shapes = {f"{norm}/{part}": (width,) for norm in ("LayerNorm_0", second_norm) for part in ("scale", "bias")}
    for name in ("query", "key", "value"):
        result |= {f"{attention}/{name}/kernel": (width, heads, inner), f"{attention}/{name}/bias": (heads, inner)}
    result |= {f"{attention}/out/kernel": (heads, inner, width), f"{attention}/out/bias": (width,)}
    result |= {f"{mlp}/Dense_0/kernel": (width, model.mlp_dim), f"{mlp}/Dense_0/bias": (model.mlp_dim,)}
    return result | {f"{mlp}/Dense_1/kernel": (model.mlp_dim, width), f"{mlp}/Dense_1/bias": (width,)}
