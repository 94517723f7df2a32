"""Pools of weights that compete for one budget: those of a matrix, those of all matrices, or those into one unit.

A pool is a vector of weights, or a matrix whose rows have budgets of their own.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import traverse_util

BUDGETS = ("matrix", "network", "row")
Params = dict[str, Any]  # nested; the key "kernel" of a layer holds its kernel
Vectors = dict[str, jax.Array]  # the weights of each pool, [n] or [rows, n]


@dataclasses.dataclass(frozen=True)
class Pools:
    """The pools of the kernels of some layers.

    Attributes:
      budget: one of `BUDGETS`. `network` makes one pool of all kernels. `matrix` and `row` (the weights into one unit)
        make a pool of each kernel, named after its layer.
      layers: the layers whose kernels are pruned; each is named by its keys in the network, joined by dots.
    """

    budget: str
    layers: Sequence[str]

    @property
    def in_rows(self) -> bool:
        """Tells whether the rows of a pool have budgets of their own."""
        return self.budget == "row"

    def kernels(self, network: Params) -> dict[str, Any]:
        """Returns the pruned kernels by layer, of a network or of a tree with its structure."""
        leaves = traverse_util.flatten_dict(network)
        return {layer: leaves[_path(layer)] for layer in self.layers}

    def gather(self, network: Params) -> Vectors:
        """Returns the pools of a network, or of a tree with its structure."""
        kernels = self.kernels(network)
        if self.budget == "network":
            return {"network": jnp.concatenate([kernel.ravel() for kernel in kernels.values()])}
        if self.in_rows:
            return {layer: kernel.reshape(_matrix(layer, kernel.shape)).T for layer, kernel in kernels.items()}
        return {layer: kernel.ravel() for layer, kernel in kernels.items()}

    def scatter(self, vectors: Vectors, network: Params) -> Params:
        """Returns `network` with kernels from pools: the inverse of `gather`."""
        kernels = self.kernels(network)
        if self.budget == "network":
            (vector,) = vectors.values()
            ends = np.cumsum([kernel.size for kernel in kernels.values()])
            parts = dict(zip(kernels, jnp.split(vector, ends[:-1]), strict=True))
        else:
            parts = {layer: vector.T if self.in_rows else vector for layer, vector in vectors.items()}
        pruned = {_path(layer): parts[layer].reshape(kernel.shape) for layer, kernel in kernels.items()}
        return traverse_util.unflatten_dict(traverse_util.flatten_dict(network) | pruned)


def _path(layer: str) -> tuple[str, ...]:
    return (*layer.split("."), "kernel")


def _matrix(layer: str, shape: Sequence[int]) -> tuple[int, int]:
    """Returns the numbers of inputs and units of a kernel of Flax's `Dense` or `MultiHeadDotProductAttention`.

    Kernels of attention have an axis of heads: behind the inputs, or in `out` before the units.
    """
    first_unit = len(shape) - 1 if layer.split(".")[-1] == "out" else 1
    return math.prod(shape[:first_unit]), math.prod(shape[first_unit:])


def forget(opt_state: optax.OptState, masks: Mapping[str, jax.Array]) -> optax.OptState:
    """Returns the state of an optimizer with 0 for each entry that belongs to an entry of a kernel with mask 0.

    Args:
      opt_state: the state; trees in it, such as momenta, hold the kernel of a layer below "network", the keys of the
        layer, and "kernel".
      masks: by layer, a mask of the shape of its kernel.
    """
    places = {("network", *_path(layer)): mask for layer, mask in masks.items()}
    lengths = {len(place) for place in places}

    def cleared(path: Any, leaf: Any) -> Any:
        keys = tuple(str(getattr(entry, "key", "")) for entry in path)
        place = next((keys[-length:] for length in lengths if keys[-length:] in places), None)
        return leaf if place is None else leaf * places[place]

    return jax.tree_util.tree_map_with_path(cleared, opt_state)
