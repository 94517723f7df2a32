"""V-MoE (Riquelme et al. 2021): a vision transformer in which some MLPs are layers of experts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flax import linen as nn

from experiments.vision import vit
from experiments.vmoe.layer import MoeLayer
from experiments.vmoe.routers import RouterOrDense

Routers = RouterOrDense | Mapping[str, RouterOrDense]
# Width, depth, width of MLPs and experts, heads, and the width of the dense layer with a tanh in front of the head, as
# in the public V-MoE code.
SIZES: dict[str, tuple[int, int, int, int, int | None]] = {
    "mu": (32, 2, 128, 2, None),
    "S": (512, 8, 2048, 8, 512),
    "B": (768, 12, 3072, 12, 768),
    "L": (1024, 24, 4096, 16, 1024),
}


def make(
    variant: str,
    num_classes: int,
    *,
    moe_blocks: Sequence[int],
    num_experts: int,
    router: Routers,
    group_images: int,
    dispatcher: str = "gather",
    noise: float = 0.0,
    **options: Any,
) -> vit.VisionTransformer:
    """Returns the network of a size and a patch size, such as "S/32".

    Args:
      variant: a name in SIZES, a slash, and the patch size in pixels.
      num_classes: the number of logits; the bias of the head starts from minus its logarithm.
      moe_blocks: the blocks, numbered from 0, whose MLP is a `MoeLayer`.
      num_experts: the number of experts in each of them.
      router: the router of all layers, or a router for each by block, as "block_1".
      group_images, dispatcher, noise: as in `MoeLayer`.
      **options: further fields of `vit.VisionTransformer`; they win over those of the size.

    Raises:
      UsageError: there is no such variant.
    """
    fields = vit.fields_of(variant, SIZES, "V-MoE", "S/32") | options
    mlp_dim, dtype = fields["mlp_dim"], fields.get("dtype", np.dtype(np.float32))

    def make_mlp(block: int) -> nn.Module:
        if block not in moe_blocks:
            return vit.MlpBlock(mlp_dim, dtype)
        own = router[f"block_{block}"] if isinstance(router, Mapping) else router
        return MoeLayer(num_experts, mlp_dim, own, group_images, dispatcher, noise, dtype)

    return vit.VisionTransformer(num_classes, make_mlp=make_mlp, head_bias=-float(np.log(num_classes)), **fields)


def tokens_per_image(model: vit.VisionTransformer, image_size: int) -> int:
    """Returns the number of patches, plus one for a class token."""
    return (image_size // model.patch_size) ** 2 + (model.pool == "tok")


def forward_flops(
    model: vit.VisionTransformer,
    image_size: int,
    channels: int,
    *,
    moe_blocks: int,
    num_logits: int,
    slots_per_image: float,
) -> float:
    """Returns the operations of the matrix products in one image's forward pass: two for each multiplication.

    Dispatch is left out. `num_logits` are those of a token in a router. `slots_per_image` is E C divided by the images
    of a group: experts compute on all slots, full or not.
    """
    tokens = tokens_per_image(model, image_size)
    mlp = 4.0 * model.width * model.mlp_dim
    router = 2.0 * tokens * model.width * num_logits
    return vit.forward_flops(model, image_size, channels) + moe_blocks * (router + (slots_per_image - tokens) * mlp)
