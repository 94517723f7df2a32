"""LISTA: a network that learns to be a fast sparse coder."""

import dataclasses
from typing import Any, Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ...interface.arguments import POSITIVE, check_choice, check_scalar, check_whole, floating, working_dtype
from .least_squares import check_dictionary, curvature_bound, matmul
from .soft_threshold import sigshrink, soft_threshold

Shrinkage = Literal["soft", "sigshrink"]
SHRINKAGES: tuple[str, ...] = ("soft", "sigshrink")


Parameters = dict[str, Array]


@dataclasses.dataclass(frozen=True, eq=False)
class Lista:
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

    Raises:
      ValueError: `layers` or `lam` is not positive, or there is no such shrinkage.
    """

    dictionary: ArrayLike
    lam: float
    layers: int
    shrinkage: Shrinkage = "soft"
    sharpness: float = 10.0

    def __post_init__(self) -> None:
        check_choice("shrinkage", self.shrinkage, SHRINKAGES)
        check_whole("layers", self.layers, 1, float("inf"), "at least 1")
        check_scalar("lam", self.lam, POSITIVE)

    def _step(self, dtype: Any) -> Array:
        return (1.0 / curvature_bound(self.dictionary)).astype(dtype)

    def init(self, dtype: Any = jnp.float32) -> Parameters:
        """The parameters at the start: `encoder` (features, atoms), `lateral` (atoms, atoms), `threshold` (atoms,)."""
        dictionary, step = jnp.asarray(self.dictionary, dtype), self._step(dtype)
        atoms = dictionary.shape[1]
        return {
            "encoder": step * dictionary,
            "lateral": jnp.eye(atoms, dtype=dtype) - step * matmul(dictionary.T, dictionary),
            "threshold": jnp.full((atoms,), self.lam, dtype) * step,
        }

    def __call__(self, parameters: Parameters, x: ArrayLike) -> Array:
        """Codes `(..., atoms)` of vectors `(..., features)`, in the dtype of `x`; computed in float32 at least.

        Raises:
          ValueError: the vectors do not have the features of the dictionary.
        """
        x = floating(x)
        check_dictionary(self.dictionary, x)
        dtype = working_dtype(x.dtype)
        encoder, lateral = (parameters[name].astype(dtype) for name in ("encoder", "lateral"))
        steepness = self.sharpness / (self.lam * self._step(dtype))

        def shrink(y: Array) -> Array:
            thresholds = jnp.broadcast_to(parameters["threshold"].astype(dtype), y.shape)
            if self.shrinkage == "soft":
                return soft_threshold(y, thresholds)
            return sigshrink(y, thresholds, steepness)

        seen = matmul(x.astype(dtype), encoder)
        y = shrink(seen)
        for _ in range(self.layers - 1):
            y = shrink(seen + matmul(y, lateral))
        return y.astype(x.dtype)
