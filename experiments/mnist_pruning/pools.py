"""Which weights compete for one budget: those of a matrix, those of all matrices, or those into one unit.

A pool is a vector of weights, or a matrix with a vector in each row, where every row has a budget of its own.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.mnist_pruning.model import Params, map_kernels

BUDGETS = ("matrix", "network", "row")
Vectors = dict[str, jax.Array]  # by pool: [n], or [rows, n]


@dataclasses.dataclass(frozen=True)
class Pools:
    """The pools of the kernels of some layers.

    Attributes:
      budget: of `BUDGETS`. `matrix` and `row` (the weights into one unit) make a pool of each kernel, named after its
        layer, `network` one of all of them.
      layers: whose kernels are pruned.
    """

    budget: str
    layers: Sequence[str]

    @property
    def in_rows(self) -> bool:
        """Whether the rows of a pool have budgets of their own."""
        return self.budget == "row"

    def gather(self, network: Params) -> Vectors:
        """The pools of a network, or of what has its shape."""
        kernels = {layer: network[layer]["kernel"] for layer in self.layers}
        if self.budget == "network":
            return {"network": jnp.concatenate([kernel.ravel() for kernel in kernels.values()])}
        if self.in_rows:
            return {layer: kernel.T for layer, kernel in kernels.items()}
        return {layer: kernel.ravel() for layer, kernel in kernels.items()}

    def scatter(self, vectors: Vectors, network: Params) -> Params:
        """`network` with the kernels that `gather` would make these pools of."""
        if self.budget == "network":
            (vector,) = vectors.values()
            ends = [0]
            for layer in self.layers:
                ends.append(ends[-1] + network[layer]["kernel"].size)
            parts = {layer: vector[ends[i] : ends[i + 1]] for i, layer in enumerate(self.layers)}
        else:
            parts = {layer: vector.T if self.in_rows else vector for layer, vector in vectors.items()}
        return map_kernels(lambda layer, kernel: parts[layer].reshape(kernel.shape), network, self.layers)

    def sizes(self, widths: Sequence[int]) -> dict[str, int]:
        """How many weights compete with each other in each pool, of a network whose layers have these widths."""
        shapes = {layer: (widths[int(layer) - 1], widths[int(layer)]) for layer in self.layers}
        if self.budget == "network":
            return {"network": sum(math.prod(shape) for shape in shapes.values())}
        return {layer: shape[0] if self.in_rows else math.prod(shape) for layer, shape in shapes.items()}


def forget(opt_state: optax.OptState, masks: Mapping[str, jax.Array]) -> optax.OptState:
    """The state of an optimizer of networks with 0 for all that it remembers of kernels' entries whose mask is 0.

    Args:
      opt_state: in which such trees as momenta have the kernel of a layer below the keys "network", LAYER, "kernel".
      masks: by layer, of the shape of its kernel.
    """
    places = {("network", layer, "kernel"): mask for layer, mask in masks.items()}

    def cleared(path: Any, leaf: Any) -> Any:
        place = tuple(getattr(entry, "key", None) for entry in path[-3:])
        return leaf * places[place] if place in places else leaf

    return jax.tree_util.tree_map_with_path(cleared, opt_state)
