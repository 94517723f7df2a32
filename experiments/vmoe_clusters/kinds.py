"""The routers of the task: those of V-MoE by which experts choose, and the best assignment itself."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
from jax import Array

from experiments.core.report.style import BLACK, RED, Look
from experiments.vmoe.router_kinds import ROUTERS
from experiments.vmoe.routers import Logits, Slots
from experiments.vmoe.routers.routing import PerExpert, fill_slots

BEST = "best"
# In the order of the tables.
NAMES = (BEST, "hard", "relaxed", "annealed", "straight_through", "balanced")

Fields = Mapping[str, Any]  # `config.router` of a run


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


def label(fields: Fields) -> str:
    """In tables and figures."""
    return "the best assignment" if fields["name"] == BEST else ROUTERS[fields["name"]].label(fields)


def setting(fields: Fields) -> str:
    """What is chosen besides the learning rate; empty for nothing."""
    return "" if fields["name"] == BEST else ROUTERS[fields["name"]].setting(fields)


def look(fields: Fields) -> Look:
    """In figures."""
    if fields["name"] == BEST:
        return BLACK, "-"
    of_kind = ROUTERS[fields["name"]].look
    return of_kind(fields) if of_kind else (RED, "-")
