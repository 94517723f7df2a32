"""The router that is told the best assignment."""

import dataclasses

import jax
from jax import Array

from experiments.vmoe.routers import Logits, Slots
from experiments.vmoe.routers.routing import PerExpert, fill_slots


@dataclasses.dataclass(frozen=True)
class Assigned(PerExpert):
    """A mask that is given: what is left to learn are the gates.

    Attributes:
      mask: [G, E, S], of zeros and ones.
      k: ones of each expert.
    """

    mask: Array
    k: int

    def __call__(self, logits: Logits) -> Slots:
        """The `k` tokens of each expert."""
        _, token = jax.lax.top_k(self.mask, self.k)
        return fill_slots(jax.nn.softmax(logits.noisy), self.mask, token)
