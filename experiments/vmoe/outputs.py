"""The outputs of a network with experts: logits, and the routing of its layers. `B` images, `G` groups."""

import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.core.training.experiment import Params
from experiments.vision.vit import VisionTransformer
from experiments.vmoe import layer
from experiments.vmoe.routers import Logits


class Outputs(NamedTuple):
    """The outputs of one forward pass; all but the logits are by group, in the order of the images.

    Attributes:
      logits: [B, n].
      auxiliary: [G], the sum of the losses of the routers.
      routing: by block ("block_1"), the metrics of the router, each [G]; empty for Soft MoE.
      assigned: by block, the experts that work on each token, bool [G, S, E]; empty for Soft MoE.
    """

    logits: jax.Array
    auxiliary: jax.Array
    routing: dict[str, dict[str, jax.Array]]
    assigned: dict[str, jax.Array]

    def experts_of_images(self, block: str) -> jax.Array:
        """Counts the tokens of each image that an expert works on: [B, E] float32."""
        assigned = self.assigned[block]
        return assigned.reshape(len(self.logits), -1, assigned.shape[-1]).sum(axis=1, dtype=jnp.float32)


def apply(
    network: VisionTransformer, params: Params, images: jax.Array, rngs: dict[str, jax.Array] | None = None
) -> Outputs:
    """Returns the outputs for images [B, H, W, C]; routers with noise need random numbers `rngs[layer.NOISE]`."""
    collections = [layer.ROUTING, layer.AUXILIARY, layer.ASSIGNED]
    logits, sown = network.apply({"params": params}, images, rngs=rngs, mutable=collections)
    losses = jax.tree.leaves(sown.get(layer.AUXILIARY, {}))
    return Outputs(
        logits,
        sum(losses, jnp.zeros_like(losses[0])) if losses else jnp.zeros(1),
        _by_block(sown.get(layer.ROUTING, {})),
        {block: of["of_tokens"] for block, of in _by_block(sown.get(layer.ASSIGNED, {})).items()},
    )


def router_logits(network: VisionTransformer, params: Params, images: jax.Array) -> dict[str, Logits]:
    """Returns by block the logits of the router for images [B, H, W, C]."""
    name = layer.MoeLayer.router_logits.__name__
    kept = network.apply(
        {"params": params}, images, capture_intermediates=lambda _, method: method == name, mutable=["intermediates"]
    )[1]
    return {block: of[name][0] for block, of in _by_block(kept["intermediates"]).items()}


def _by_block(collection: Any) -> dict[str, dict[str, Any]]:
    """Returns by block the values that its layer of experts sowed."""
    blocks = collection.get("Transformer", {})
    return {f"block_{re.sub(r'[^0-9]', '', name)}": next(iter(sown.values())) for name, sown in blocks.items()}
