"""The linear classifier at the end of a network, alone."""

import jax
from flax import linen as nn


class Head(nn.Module):
    """Features to logits, from zeros, as the head of `VisionTransformer`; maps are averaged over their places first."""

    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[B, D] or [B, H, W, D] to [B, num_classes]."""
        if x.ndim == 4:
            x = x.mean(axis=(1, 2))
        return nn.Dense(self.num_classes, kernel_init=nn.initializers.zeros, name="head")(x.astype("float32"))
