"""The paper's multilayer perceptron, `W3 relu(W2 relu(W1 a + b1) + b2) + b3`."""

from collections.abc import Sequence

import jax
from flax import linen as nn


class MLP(nn.Module):
    """Layers named "1", "2", ... as the paper numbers them; biases start at 0.

    Attributes:
      widths: of the hidden layers.
      num_classes: width of the output.
      kernel_init: of all kernels.
    """

    widths: Sequence[int]
    num_classes: int
    kernel_init: nn.initializers.Initializer = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Inputs [B, D] to logits [B, num_classes]."""
        for layer, width in enumerate(self.widths, start=1):
            x = nn.relu(nn.Dense(width, kernel_init=self.kernel_init, name=str(layer))(x))
        return nn.Dense(self.num_classes, kernel_init=self.kernel_init, name=str(len(self.widths) + 1))(x)
