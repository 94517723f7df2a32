"""The routers of the task: V-MoE's expert-choice routers, and the best assignment."""

import dataclasses

import jax
from jax import Array

from experiments.core.kinds import Kinds
from experiments.vmoe.router_kinds import KINDS as ROUTER_KINDS
from experiments.vmoe.routers import Logits, Slots
from experiments.vmoe.routers.routing import PerExpert, fill_slots

BEST = "best"
# The order of the tables.
NAMES = (BEST, "hard", "relaxed", "annealed", "straight_through", "balanced")
KINDS = Kinds(
    "router.name",
    reads={name: ROUTER_KINDS.reads.get(name, ()) for name in NAMES},
    only_if={"router.lam.end": ("router.lam.schedule", ["geometric"])},
    ignores={BEST: ("router.capacity",)},
    options={"router.name": "router"},
)


@dataclasses.dataclass(frozen=True)
class Assigned(PerExpert):
    """A router with a given mask, so that only the gates are trained.

    Attributes:
      mask: [G, E, S], zeros and ones.
      k: the number of ones for each expert.
    """

    mask: Array
    k: int

    def __call__(self, logits: Logits) -> Slots:
        """Routes the `k` tokens of the mask to each expert."""
        _, token = jax.lax.top_k(self.mask, self.k)
        return fill_slots(jax.nn.softmax(logits.noisy), self.mask, token)
