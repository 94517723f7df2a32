"""Names and shapes of the arrays in the public files of weights (`pretrained.py` says which), written out."""

import numpy as np

from experiments.vision import vit

_PARTS = ("scale", "bias")


def shapes(layout: str, variant: str, *, image_size: int, num_classes: int, depth: int) -> dict[str, tuple[int, ...]]:
    """The keys of a file, and the shapes of the arrays under them.

    Args:
      layout: "original" or "augreg".
      variant: the network: "B/16".
      image_size: side of the images in pixels, a multiple of the patch size.
      num_classes: of the head.
      depth: number of blocks.
    """
    model = vit.make(variant, num_classes)
    width, patch = model.width, model.patch_size
    result = {
        "embedding/kernel": (patch, patch, 3, width),
        "embedding/bias": (width,),
        "Transformer/posembed_input/pos_embedding": (1, 1 + (image_size // patch) ** 2, width),
        "cls": (1, 1, width),
        **{f"Transformer/encoder_norm/{part}": (width,) for part in _PARTS},
        "head/kernel": (width, num_classes),
        "head/bias": (num_classes,),
    }
    for number in range(depth):
        result |= {f"Transformer/encoderblock_{number}/{name}": shape for name, shape in _block(model).items()}
    if layout == "original":
        result |= {"pre_logits/kernel": (width, width), "pre_logits/bias": (width,)}
    return result


def _block(model: vit.VisionTransformer) -> dict[str, tuple[int, ...]]:
    attention, mlp = "MultiHeadDotProductAttention_1", "MlpBlock_3"
    width, heads = model.width, model.num_heads
    inner = width // heads
    result = {f"{norm}/{part}": (width,) for norm in ("LayerNorm_0", "LayerNorm_2") for part in _PARTS}
    for name in ("query", "key", "value"):
        result |= {f"{attention}/{name}/kernel": (width, heads, inner), f"{attention}/{name}/bias": (heads, inner)}
    result |= {f"{attention}/out/kernel": (heads, inner, width), f"{attention}/out/bias": (width,)}
    result |= {f"{mlp}/Dense_0/kernel": (width, model.mlp_dim), f"{mlp}/Dense_0/bias": (model.mlp_dim,)}
    return result | {f"{mlp}/Dense_1/kernel": (model.mlp_dim, width), f"{mlp}/Dense_1/bias": (width,)}


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
