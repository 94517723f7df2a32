"""The ways to prune, by the name that `config.method` has for them.

To add one: a file that makes it from a config, and an entry of METHODS; `report.py` may give it another name and a
look. Each follows its paper, except where its function says "Differs from the paper". jaxpruner, the JAX library of
such methods, is on no package index and calls `jax.tree_map`, which JAX has removed; its RigL drops and grows as ours
does.
"""

import ml_collections

from experiments.core.config import require, require_one_of
from experiments.core.kinds import Kinds
from experiments.core.training.optimizer import LAM_SCHEDULES
from experiments.mnist_pruning import pools
from experiments.mnist_pruning.methods import (
    gradual,
    hard,
    hard_concrete,
    ista,
    masks,
    movement,
    relaxed,
    rigl,
    schedules,
    soft_threshold,
    topkast,
)

# The order of the tables.
METHODS = {
    "dense": hard.DENSE,
    "hard": hard.HARD,
    "relaxed": relaxed.RELAXED,
    "straight_through": relaxed.STRAIGHT_THROUGH,
    "ot_straight_through": masks.OT_STRAIGHT_THROUGH,
    "mask_straight_through": masks.MASK_STRAIGHT_THROUGH,
    "hard_concrete": hard_concrete.HARD_CONCRETE,
    "ista": ista.ISTA,
    "identity_straight_through": hard.IDENTITY_STRAIGHT_THROUGH,
    "st3": hard.ST3,
    "gradual": gradual.GRADUAL,
    "movement": movement.MOVEMENT,
    "rigl": rigl.RIGL,
    "topkast": topkast.TOPKAST,
    "str": soft_threshold.STR,
}
KINDS = Kinds(
    "method",
    reads={name: method.reads for name, method in METHODS.items()},
    only_if={
        "lam.start": ("lam.schedule", LAM_SCHEDULES),
        "lam.end": ("lam.schedule", ["geometric"]),
        "density_schedule.begin": ("density_schedule.name", ["cubic"]),
        "density_schedule.end": ("density_schedule.name", ["cubic"]),
        "mask.num_samples": ("mask.name", [name for name, mask in masks.MASKS.items() if mask.draws]),
    },
    options={"method": ""},
)


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that all methods read, and those of the method that is used."""
    require_one_of("method", config.method, METHODS)
    require(0 < config.density <= 1, "density", config.density, "in (0, 1]")
    require_one_of("budget", config.budget, pools.BUDGETS)
    schedules.validate(config)
    used, name = METHODS[config.method], config.density_schedule.name
    used.validate(config)
    followed = used.density_schedules
    require(name in followed, "density_schedule.name", name, f"{' or '.join(followed)} for {config.method}")
    require(used.keeps_all or config.density < 1, "density", config.density, f"in (0, 1) for {config.method}")
