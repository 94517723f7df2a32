"""Residual networks for small images: those of He et al. (2016, Section 4.2) for CIFAR, ResNet-20 among them.

The axes are `B` batch, `H` height, `W` width, `C` channels. Parameters, all in float32, are

    stem, stage{s}_block{b}_conv{1,2}    kernel [9 C, C'], of 3 x 3 pixels in the order of `patches`
    ..._norm                             scale, bias
    head                                 kernel [C, num_classes], bias
"""

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

STAGES = 3  # each has twice the channels of the one before, at half the height and width
STATISTICS = "batch_stats"  # the collection of means and variances of the norms


def patches(x: Array, stride: int = 1) -> Array:
    """[B, H, W, C] to [B, H / stride, W / stride, 9 C]: each place with its eight neighbours, row by row, 0 outside."""
    _, height, width, _ = x.shape
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [padded[:, i : i + height : stride, j : j + width : stride] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifted, axis=-1)


class ResNet(nn.Module):
    """Images to logits; a shortcut to more channels drops places and appends zeros (option A), without parameters.

    A norm takes mean and variance from the images at hand, and leaves them in the collection `STATISTICS`; with
    `frozen` it takes them from there.

    Convolutions are products of patches. Over an axis of seeds these stay products, of matrices in a batch, where
    convolutions would become grouped ones, whose gradients are slow.

    Attributes:
      num_classes: the width of the output.
      depth: the number of layers with kernels: 6 n + 2 for n blocks a stage.
      width: the channels of the first stage.
      dtype: the type of the factors of convolutions; all else is in float32.
    """

    num_classes: int
    depth: int = 20
    width: int = 16
    dtype: jnp.dtype = jnp.dtype("float32")

    @nn.compact
    def __call__(self, x: Array, *, frozen: bool = False) -> Array:
        """Images [B, H, W, C] in float32 to logits [B, num_classes]."""

        def convolved(x: Array, channels: int, stride: int, name: str) -> Array:
            init = nn.initializers.he_normal()
            product = nn.Dense(channels, use_bias=False, kernel_init=init, dtype=self.dtype, name=name)
            x = product(patches(x.astype(self.dtype), stride)).astype(jnp.float32)
            return nn.BatchNorm(use_running_average=frozen, momentum=0.0, name=f"{name}_norm")(x)

        x = nn.relu(convolved(x, self.width, 1, "stem"))
        for stage in range(STAGES):
            for block in range((self.depth - 2) // (2 * STAGES)):
                channels, stride = self.width * 2**stage, 2 if stage and not block else 1
                name = f"stage{stage}_block{block}"
                y = nn.relu(convolved(x, channels, stride, f"{name}_conv1"))
                y = convolved(y, channels, 1, f"{name}_conv2")
                shortcut = x[:, ::stride, ::stride]
                x = nn.relu(y + jnp.pad(shortcut, (*[(0, 0)] * 3, (0, channels - x.shape[-1]))))
        return nn.Dense(self.num_classes, name="head")(x.mean(axis=(1, 2)))
