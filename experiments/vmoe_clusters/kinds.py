"""The routers of the task: those of V-MoE by which experts choose, and the best assignment itself."""

from experiments.core.kinds import Kinds
from experiments.vmoe.router_kinds import KINDS as OF_ROUTERS

BEST = "best"
# The order of the tables.
NAMES = (BEST, "hard", "relaxed", "annealed", "straight_through", "balanced")
KINDS = Kinds(
    "router.name",
    reads={name: OF_ROUTERS.reads.get(name, ()) for name in NAMES},
    only_if={"router.lam.end": ("router.lam.schedule", ["geometric"])},
    ignores={BEST: ("router.capacity",)},
    options={"router.name": "router"},
)
