"""The routers of the experiment, by their names in `config.router.name`.

To add one: a class in `routers/`, and an entry of ROUTERS; `report.py` may give it another name and a look.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from experiments.core.config import require, require_one_of
from experiments.core.kinds import Kinds
from experiments.core.training import optimizer
from experiments.vmoe import routers


@dataclasses.dataclass(frozen=True)
class Shape:
    """The sizes of the routing: S tokens in a group, k tokens of an expert, C slots in its buffer."""

    tokens: int
    k: int
    capacity: int


@dataclasses.dataclass(frozen=True)
class RouterKind:
    """An entry of ROUTERS.

    Attributes:
      make: returns the router, given `config.router`, the sizes of the routing and lam.
      reads: which fields of `config.router` it reads among those that not all routers read.
      ignores: the fields of the config, by dotted name, that it does not read although most routers do.
      score: the default of `config.router.score`.
      fields: the defaults of further fields of `config.router`.
      auxiliary: whether it has a loss of its own, which is then reported.
      validate: checks the fields of the router, also in runs of other routers.
      validate_shape: checks `config.router`, the shape and the number of experts, of runs with this router.
    """

    make: Callable[[ConfigDict, Shape, Any], routers.RouterOrDense]
    reads: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    score: str = "logits"
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    auxiliary: bool = False
    validate: Callable[[ConfigDict], None] = lambda fields: None
    validate_shape: Callable[[ConfigDict, Shape, int], None] = lambda fields, shape, num_experts: None


def _relaxed(fields: ConfigDict, shape: Shape, lam: Any) -> routers.Router:
    return routers.RelaxedExpertChoice(shape.k, shape.capacity, lam, fields.p, fields.score, fields.dykstra or None)


def _validate_relaxed(fields: ConfigDict) -> None:
    require(1 < fields.p <= 2, "router.p", fields.p, "in (1, 2]")
    require(fields.dykstra >= 0, "router.dykstra", fields.dykstra, "positive, or 0")
    require(not fields.dykstra or fields.p == 2, "router.p", fields.p, "2 with router.dykstra, which knows no other")
    require(0 < fields.hard_after <= 1, "router.hard_after", fields.hard_after, "in (0, 1]")
    optimizer.validate_lam(fields.lam, "router.lam")


def _validate_capacity(fields: ConfigDict, shape: Shape, num_experts: int) -> None:
    require(shape.capacity >= shape.k, "router.capacity", shape.capacity, f"at least k={shape.k}, or 0 for as many")


def _validate_annealed(fields: ConfigDict, shape: Shape, num_experts: int) -> None:
    """Checks that lam falls and the mask ends hard: any other router is called relaxed."""
    schedule = fields.lam.schedule
    require(schedule == "geometric", "router.lam.schedule", schedule, "geometric for router.name='annealed'")
    require(fields.hard_after < 1, "router.hard_after", fields.hard_after, "below 1 for router.name='annealed'")
    _validate_capacity(fields, shape, num_experts)


def _validate_exact(fields: ConfigDict, shape: Shape, num_experts: int) -> None:
    """Checks routers without Dykstra's algorithm."""
    require(not fields.dykstra, "router.dykstra", fields.dykstra, f"0 for router.name={fields.name!r}")
    _validate_capacity(fields, shape, num_experts)


def _validate_balance(fields: ConfigDict, shape: Shape, num_experts: int) -> None:
    _validate_exact(fields, shape, num_experts)
    require(fields.hard_after == 1, "router.hard_after", fields.hard_after, "1: a plan needs a lam above 0")
    least = num_experts * shape.k / shape.tokens
    allowed = f"at least {least:g}: {num_experts} experts of k={shape.k} for {shape.tokens} tokens"
    require(fields.limit >= least, "router.limit", fields.limit, allowed)


def _validate_token_choice(fields: ConfigDict) -> None:
    require(fields.selected > 0, "router.selected", fields.selected, "positive")
    require_one_of("router.priority", fields.priority, routers.PRIORITIES)
    require(fields.auxiliary >= 0, "router.auxiliary", fields.auxiliary, "at least 0")


_RELAXED = RouterKind(
    _relaxed,
    reads=("score", "p", "lam", "hard_after", "dykstra"),
    validate=_validate_relaxed,
    validate_shape=_validate_capacity,
)

# The order of the tables.
ROUTERS = {
    "hard": RouterKind(
        lambda fields, shape, lam: routers.HardExpertChoice(shape.k, fields.score),
        reads=("score",),
        score="gates",  # as in Zhou et al.; the score of the logits is for comparison with the relaxed router
        validate_shape=lambda fields, shape, num_experts: require(
            shape.capacity == shape.k, "router.capacity", shape.capacity, f"k={shape.k}, or 0: it takes no more"
        ),
    ),
    "relaxed": _RELAXED,
    "annealed": dataclasses.replace(
        _RELAXED,
        validate_shape=_validate_annealed,
        fields={"lam.schedule": "geometric", "lam.start": 10.0, "lam.end": 0.1, "hard_after": 0.9},
    ),
    "straight_through": RouterKind(
        lambda fields, shape, lam: routers.StraightThroughExpertChoice(
            shape.k, shape.capacity, lam, fields.p, fields.score
        ),
        reads=("score", "p", "lam", "hard_after"),
        validate_shape=_validate_exact,
    ),
    "balanced": RouterKind(
        lambda fields, shape, lam: routers.BalancedExpertChoice(
            shape.k, shape.capacity, fields.limit, lam, fields.p, fields.score
        ),
        reads=("score", "p", "lam", "hard_after", "limit"),
        validate=lambda fields: require(fields.limit > 0, "router.limit", fields.limit, "positive"),
        validate_shape=_validate_balance,
    ),
    "token_choice": RouterKind(
        lambda fields, shape, lam: routers.TokenChoice(fields.selected, shape.capacity, fields.priority),
        reads=("selected", "priority", "auxiliary"),
        auxiliary=True,
        validate=_validate_token_choice,
        validate_shape=lambda fields, shape, num_experts: require(
            fields.selected <= num_experts, "router.selected", fields.selected, f"at most the {num_experts} experts"
        ),
    ),
    "soft": RouterKind(lambda fields, shape, lam: routers.SoftMoe(shape.capacity), ignores=("moe.dispatcher",)),
    "dense": RouterKind(
        lambda fields, shape, lam: routers.Dense(shape.tokens, shape.capacity),
        ignores=("router.noise", "moe.dispatcher"),
    ),
    # The lower bound: where it is as good as the others, experts do not matter, and routers cannot differ.
    "none": RouterKind(
        lambda fields, shape, lam: routers.Dense(shape.tokens, slots=0),
        ignores=(
            "router.k",
            "router.factor",
            "router.multiple_of",
            "router.capacity",
            "router.noise",
            "moe.num_experts",
            "moe.dispatcher",
        ),
    ),
}
KINDS = Kinds(
    "router.name",
    reads={name: [f"router.{field}" for field in kind.reads] for name, kind in ROUTERS.items()},
    only_if={
        "router.lam.end": ("router.lam.schedule", ["geometric"]),
        "router.factor": ("router.k", [0]),
        "router.multiple_of": ("router.k", [0]),
    },
    ignores={name: kind.ignores for name, kind in ROUTERS.items()},
    options={"router.name": "router", "dataset": "data", "model.variant": "size"},
)
