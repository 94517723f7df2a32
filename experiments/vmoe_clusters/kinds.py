"""The routers of the task: those of V-MoE by which experts choose, and the best assignment itself."""

from collections.abc import Mapping
from typing import Any

from experiments.core.kinds import Kinds
from experiments.core.report.style import BLACK, RED, Look
from experiments.vmoe.router_kinds import KINDS as OF_ROUTERS
from experiments.vmoe.router_kinds import ROUTERS

BEST = "best"
# In the order of the tables.
NAMES = (BEST, "hard", "relaxed", "annealed", "straight_through", "balanced")
KINDS = Kinds(
    "router.name",
    reads={name: OF_ROUTERS.reads.get(name, ()) for name in NAMES},
    only_if={"router.lam.end": ("router.lam.schedule", ["geometric"])},
    ignores={BEST: ("router.capacity",)},
    options={"router.name": "router"},
)

Fields = Mapping[str, Any]  # `config.router` of a run


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
