"""LISTA: a network that learns to be a fast sparse coder."""

from typing import Literal

import jax.numpy as jnp
from flax import linen as nn
from jax import Array
from jax.typing import ArrayLike

from ops.baselines.coding.least_squares import check_dictionary, curvature_bound, matmul
from ops.baselines.coding.soft_threshold import sigshrink, soft_threshold
from ops.interface.arguments import check_choice, floating

Shrinkage = Literal["soft", "sigshrink"]
SHRINKAGES: tuple[str, ...] = ("soft", "sigshrink")


class Lista(nn.Module):
    """A few iterations of ISTA as layers, whose matrices and thresholds are learned, shared by all layers.

    Gregor and LeCun, "Learning Fast Approximations of Sparse Coding" (ICML 2010), Algorithm 3:

        y_1 = h_theta(W x),    y_{l+1} = h_theta(W x + S y_l).

    The parameters start at `W = step D^T`, `S = I - step D^T D` and `theta = step lam`, with
    `step = 1 / curvature_bound(D)`: with soft thresholding, that is as many steps of ISTA, from 0, on
    `1/2 ||x - D y||^2 + lam ||y||_1`.

    Attributes:
      dictionary: `(features, atoms)`: where learning starts from; itself not learned.
      lam: > 0, a scalar: where the thresholds start from.
      layers: how many steps, at least 1.
      shrinkage: `"soft"`, or `"sigshrink"`, smooth but nowhere exactly 0.
      sharpness: of `"sigshrink"`, without units: `sigshrink` gets this over the threshold at the start, for good.
    """

    dictionary: ArrayLike
    lam: float
    layers: int
    shrinkage: Shrinkage = "soft"
    sharpness: float = 10.0

    @nn.compact
    def __call__(self, x: ArrayLike) -> Array:
        """Codes `(..., atoms)` of vectors `(..., features)`, in the dtype of `x`.

        Raises:
          ValueError: a shape does not fit, `layers` is not positive, or there is no such shrinkage.
        """
        check_choice("shrinkage", self.shrinkage, SHRINKAGES)
        if self.layers < 1:
            raise ValueError(f"layers must be at least 1, got {self.layers}")
        x = floating(x)
        dictionary = check_dictionary(self.dictionary, x).astype(x.dtype)
        atoms = dictionary.shape[1]
        step = (1.0 / curvature_bound(dictionary)).astype(x.dtype)
        encoder = self.param("encoder", lambda _: step * dictionary)
        lateral = self.param(
            "lateral", lambda _: jnp.eye(atoms, dtype=x.dtype) - step * matmul(dictionary.T, dictionary)
        )
        threshold = self.param("threshold", lambda _: jnp.full((atoms,), self.lam, x.dtype) * step)
        steepness = self.sharpness / (self.lam * step)

        def shrink(y: Array) -> Array:
            thresholds = jnp.broadcast_to(threshold, y.shape)
            if self.shrinkage == "soft":
                return soft_threshold(y, thresholds)
            return sigshrink(y, thresholds, steepness)

        seen = matmul(x, encoder)
        y = shrink(seen)
        for _ in range(self.layers - 1):
            y = shrink(seen + matmul(y, lateral))
        return y
