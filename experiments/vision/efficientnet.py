"""EfficientNet-Lite0 (Tan and Le 2019; Lite: without squeeze-and-excitation, ReLU6 for swish) with frozen statistics.

The axes are `B` batch, `H` height, `W` width, `C` channels. Parameters and statistics, all in float32, are

    stem, head                                 a convolution with its norm
    block_0, ..., block_15
        expand, depthwise, project             the same; block_0, which does not expand, has the last two
    classifier/{kernel,bias}                   [1280, 1000]

A convolution has `kernel` [k, k, C, C'] ([k, k, 1, C] if depthwise), `norm/{scale,bias}`, and in the collection
`batch_stats` `norm/{mean,var}`. Padding is XLA's "SAME": odd padding has its larger part at the far side.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

STAGES = (  # repeats, kernel size, stride of the first, expansion, channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM, WIDTH, NUM_CLASSES = 32, 1280, 1000
LAST_BLOCK = sum(repeats for repeats, *_ in STAGES) - 1
# The names of two outputs: the input of the last block, and the map at the end of the fifth stage.
BEFORE_LAST_BLOCK, STAGE_5 = "before_last_block", "stage_5"
# The side of a place in pixels, in the last map and in that of the fifth stage.
REDUCTION, REDUCTION_5 = 32, 16
EPSILON = 1e-3


class Outputs(NamedTuple):
    """The outputs of the network for images; compilation drops unused ones.

    Attributes:
      stage_5: [B, H / 16, W / 16, 112], the output of block 10, sides rounded up; None if `first_block` is above 10.
      before_last_block: [B, H / 32, W / 32, 192], the input of the last block, sides rounded up.
      maps: [B, H / 32, W / 32, 320], the output of the last block.
      pooled: [B, 1280], the features that the classifier sees.
      logits: [B, num_classes], by default of ImageNet's 1000 classes.
    """

    stage_5: Array | None
    before_last_block: Array
    maps: Array
    pooled: Array
    logits: Array


class EfficientNetLite0(nn.Module):
    """Images to features and logits; BatchNorm always uses the statistics of its training.

    Attributes:
      num_classes: the number of logits.
      first_block: the number of the first block. Above 0 the network has no stem, and takes the maps in front of that
        block.
    """

    num_classes: int = NUM_CLASSES
    first_block: int = 0

    @nn.compact
    def __call__(self, x: Array) -> Outputs:
        """Images [B, H, W, 3] in float32, as `preprocess` returns them; or the maps in front of `first_block`."""
        if not self.first_block:
            x = Convolution(STEM, 3, 2, name="stem")(x)
        number, before, stage_5 = 0, x, None
        for stage, (repeats, kernel_size, stride, expansion, channels) in enumerate(STAGES, start=1):
            for repeat in range(repeats):
                if number >= self.first_block:
                    before = x
                    x = Block(channels, kernel_size, 1 if repeat else stride, expansion, name=f"block_{number}")(x)
                number += 1
            if stage == 5 and number > self.first_block:
                stage_5 = x
        pooled = Convolution(WIDTH, 1, name="head")(x).mean(axis=(1, 2))
        # The kernel starts from zeros unless weights are loaded.
        classifier = nn.Dense(self.num_classes, kernel_init=nn.initializers.zeros, name="classifier")
        return Outputs(stage_5, before, x, pooled, classifier(pooled))


class Block(nn.Module):
    """An inverted residual: to more channels, a depthwise convolution, to fewer channels, added to the input."""

    channels: int
    kernel_size: int
    stride: int
    expansion: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, H, W, C] to [B, H / stride, W / stride, channels]."""
        y = x
        if self.expansion > 1:
            y = Convolution(self.expansion * x.shape[-1], 1, name="expand")(y)
        y = Convolution(y.shape[-1], self.kernel_size, self.stride, depthwise=True, name="depthwise")(y)
        y = Convolution(self.channels, 1, activation=False, name="project")(y)
        return x + y if x.shape == y.shape else y


class Convolution(nn.Module):
    """A convolution without bias, its norm, and ReLU6 if `activation` is set."""

    channels: int
    kernel_size: int
    stride: int = 1
    depthwise: bool = False
    activation: bool = True

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, H, W, C] to [B, H / stride, W / stride, channels]."""
        size, inputs = self.kernel_size, 1 if self.depthwise else x.shape[-1]
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (size, size, inputs, self.channels))
        if self.depthwise:
            x = depthwise_convolution(x, kernel, self.stride)
        elif size == 1:
            x = x @ kernel[0, 0]
        else:
            x = _convolution(x, kernel, self.stride, groups=1)
        x = nn.BatchNorm(use_running_average=True, epsilon=EPSILON, name="norm")(x)
        return jnp.clip(x, 0.0, 6.0) if self.activation else x


class Head(nn.Module):
    """Features to logits by a layer that starts from zeros; maps are averaged over their places first."""

    num_classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, D] or [B, H, W, D] to [B, num_classes]."""
        if x.ndim == 4:
            x = x.mean(axis=(1, 2))
        return nn.Dense(self.num_classes, kernel_init=nn.initializers.zeros, name="head")(x.astype("float32"))


def preprocess(images: Array, size: int) -> Array:
    """uint8 images [B, H, W, C] to floats [B, S, S, C] around 0, resized bicubically, whatever their aspect.

    The scale is (x - 127) / 128, with which the weights were trained. If images shrink, resizing widens its filter
    (antialias). It clips values to [0, 255], as storing resized images would.
    """
    batch, height, width, channels = images.shape
    x = images.astype(jnp.float32)
    if (height, width) != (size, size):
        x = jnp.clip(jax.image.resize(x, (batch, size, size, channels), "bicubic", antialias=True), 0.0, 255.0)
    return (x - 127.0) / 128.0


def from_normalised(images: Array) -> Array:
    """Images with values in [-1, 1] to the scale of `preprocess`."""
    return (images * 127.5 + 0.5) / 128.0


def in_colour(images: Array) -> Array:
    """Images [B, H, W, 1 or 3] to [B, H, W, 3], by repeating a grey channel."""
    return jnp.repeat(images, 3, axis=-1) if images.shape[-1] == 1 else images


def depthwise_convolution(x: Array, kernel: Array, stride: int) -> Array:
    """[B, H, W, C] with a kernel [k, k, 1, C] to [B, H / stride, W / stride, C].

    On CPUs it is a sum of k^2 shifted products: XLA fuses them into one loop, ten times as fast there as its grouped
    convolution. The barriers keep what comes before and after out of that loop, which would compute it k^2 times.
    """

    def shifted(x: Array, kernel: Array) -> Array:
        products = _shifted_products(jax.lax.optimization_barrier(x), kernel, stride)
        return jax.lax.optimization_barrier(products)

    def grouped(x: Array, kernel: Array) -> Array:
        return _convolution(x, kernel, stride, groups=x.shape[-1])

    return jax.lax.platform_dependent(x, kernel, cpu=shifted, default=grouped)


def _convolution(x: Array, kernel: Array, stride: int, groups: int) -> Array:
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def _shifted_products(x: Array, kernel: Array, stride: int) -> Array:
    size = kernel.shape[0]
    strides = (1, stride, stride, 1)
    sides = x.shape[1:3]
    padding = jax.lax.padtype_to_pads(sides, (size, size), (stride, stride), "SAME")
    padded = jnp.pad(x, ((0, 0), *padding, (0, 0)))
    # How far the used part of a shifted image reaches.
    height, width = (stride * (-(-side // stride) - 1) + 1 for side in sides)
    total = jnp.zeros((), x.dtype)
    for i in range(size):
        for j in range(size):
            limits = (x.shape[0], i + height, j + width, x.shape[3])
            total = total + jax.lax.slice(padded, (0, i, j, 0), limits, strides) * kernel[None, None, i, j]
    return total
