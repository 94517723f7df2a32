"""The routers of the experiment, by the name that `config.router.name` has for them.

To add one: a class in `routers/`, and an entry of ROUTERS.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import ml_collections
from etils import epy

from experiments.core.config import require, require_one_of
from experiments.core.kinds import Kinds
from experiments.core.report.markdown import number, p_name
from experiments.core.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, Look

with epy.lazy_imports():  # --help does without them
    from experiments.core.training import schedules
    from experiments.vmoe import routers

Fields = Mapping[str, Any]  # `config.router` of a run, as it reads back from its file


@dataclasses.dataclass(frozen=True)
class Shape:
    """Of the routing: S tokens in a group, k tokens of an expert, C slots in its buffer."""

    tokens: int
    k: int
    capacity: int


@dataclasses.dataclass(frozen=True)
class RouterKind:
    """A router, as `ROUTERS` lists it: all there is to be said of it."""

    make: Callable[
        [ml_collections.ConfigDict, Shape, Any], routers.RouterOrDense
    ]  # of `config.router`, the shape, and lam
    label: Callable[[Fields], str]  # in tables and figures
    look: Callable[[Fields], Look] | None = None  # in figures; None: solid, in the next colour that is free
    setting: Callable[[Fields], str] = lambda fields: ""  # what is chosen besides the learning rate, for tables
    reads: tuple[str, ...] = ()  # of the fields of `config.router` that not all read
    ignores: tuple[str, ...] = ()  # fields of the config, by dotted name, that it alone does not read, or few others
    score: str = "logits"  # the usual `config.router.score`
    fields: Fields = dataclasses.field(default_factory=dict)  # what else `config.router` has as it comes
    unbounded: bool = False  # whether its buffers hold all tokens of a group, whatever `config.router.capacity` is
    same_score: bool = False  # held against the hard router of its own score, rather than that of the gates
    auxiliary: bool = False  # whether it has a loss of its own, which is then reported
    validate: Callable[[ml_collections.ConfigDict], None] = lambda fields: None  # of its own fields, in all runs
    validate_shape: Callable[[ml_collections.ConfigDict, Shape, int], None] = lambda fields, shape, num_experts: None
    presets: tuple[str, ...] = ("demo", "small")  # that train it as it comes, under its own name


def _relaxed(fields: ml_collections.ConfigDict, shape: Shape, lam: Any) -> routers.Router:
    return routers.RelaxedExpertChoice(shape.k, shape.capacity, lam, fields.p, fields.score, fields.dykstra or None)


def _label(name: str) -> Callable[[Fields], str]:
    """The label of a router with a relaxed mask."""

    def label(fields: Fields) -> str:
        solver = f", Dykstra with {fields['dykstra']} iterations" if fields["dykstra"] else ""
        buffer = f", {fields['capacity']} slots" if fields["capacity"] else ""
        return f"{name}, p = {p_name(fields['p'])}, of the {fields['score']}{solver}{buffer}"

    return label


def _relaxed_setting(fields: Fields) -> str:
    lam = fields["lam"]
    hard_after = fields.get("hard_after", 1.0)  # runs made before there was such a field have none
    hard = f", hard after {100 * hard_after:g} % of training" if hard_after < 1 else ""
    if lam["schedule"] == "geometric":
        return f"lam from {number(lam['start'])} to {number(lam['end'])}{hard}"
    return f"lam = {number(lam['start'])}{hard}"


def _balanced_setting(fields: Fields) -> str:
    return f"at most {fields['limit']:g} experts of a token, {_relaxed_setting(fields)}"


def _validate_relaxed(fields: ml_collections.ConfigDict) -> None:
    require(1 < fields.p <= 2, "router.p", fields.p, "in (1, 2]")
    require(fields.dykstra >= 0, "router.dykstra", fields.dykstra, "positive, or 0")
    require(not fields.dykstra or fields.p == 2, "router.p", fields.p, "2 with router.dykstra, which knows no other")
    require(0 < fields.hard_after <= 1, "router.hard_after", fields.hard_after, "in (0, 1]")
    schedules.validate_lam(fields.lam, "router.lam")


def _validate_capacity(fields: ml_collections.ConfigDict, shape: Shape, num_experts: int) -> None:
    del fields, num_experts
    require(shape.capacity >= shape.k, "router.capacity", shape.capacity, f"at least k={shape.k}, or 0 for as many")


def _validate_annealed(fields: ml_collections.ConfigDict, shape: Shape, num_experts: int) -> None:
    """Anything else is a relaxed router, and is to be called that."""
    schedule = fields.lam.schedule
    require(schedule == "geometric", "router.lam.schedule", schedule, "geometric for router.name='annealed'")
    require(fields.hard_after < 1, "router.hard_after", fields.hard_after, "below 1 for router.name='annealed'")
    _validate_capacity(fields, shape, num_experts)


def _validate_exact(fields: ml_collections.ConfigDict, shape: Shape, num_experts: int) -> None:
    """Of those that know the threshold alone."""
    require(not fields.dykstra, "router.dykstra", fields.dykstra, f"0 for router.name={fields.name!r}")
    _validate_capacity(fields, shape, num_experts)


def _validate_balance(fields: ml_collections.ConfigDict, shape: Shape, num_experts: int) -> None:
    _validate_exact(fields, shape, num_experts)
    require(fields.hard_after == 1, "router.hard_after", fields.hard_after, "1: a plan needs a lam above 0")
    least = num_experts * shape.k / shape.tokens
    allowed = f"at least {least:g}: {num_experts} experts of k={shape.k} for {shape.tokens} tokens"
    require(fields.limit >= least, "router.limit", fields.limit, allowed)


def _validate_token_choice(fields: ml_collections.ConfigDict) -> None:
    require(fields.selected > 0, "router.selected", fields.selected, "positive")
    require_one_of("router.priority", fields.priority, routers.PRIORITIES)
    require(fields.auxiliary >= 0, "router.auxiliary", fields.auxiliary, "at least 0")


_RELAXED = RouterKind(
    _relaxed,
    _label("relaxed expert choice"),
    setting=_relaxed_setting,
    reads=("score", "p", "lam", "hard_after", "dykstra"),
    same_score=True,
    validate=_validate_relaxed,
    validate_shape=_validate_capacity,
    presets=("demo", "full"),
)

# In the order of the tables.
ROUTERS = {
    "hard": RouterKind(
        lambda fields, shape, lam: routers.HardExpertChoice(shape.k, fields.score),
        lambda fields: f"hard expert choice, of the {fields['score']}",
        lambda fields: (BLUE, "-" if fields["score"] == "gates" else "--"),
        reads=("score",),
        score="gates",  # Zhou et al.; that of the logits is there for the relaxed one to be held against
        validate_shape=lambda fields, shape, num_experts: require(
            shape.capacity == shape.k, "router.capacity", shape.capacity, f"k={shape.k}, or 0: it takes no more"
        ),
        presets=("demo", "full"),
    ),
    "relaxed": _RELAXED,
    "annealed": dataclasses.replace(
        _RELAXED,
        label=_label("relaxed expert choice annealed to the hard"),
        validate_shape=_validate_annealed,
        look=lambda fields: (ORANGE, "--"),
        fields={"lam.schedule": "geometric", "lam.start": 10.0, "lam.end": 0.1, "hard_after": 0.9},
        presets=(),
    ),
    "unbounded": dataclasses.replace(
        _RELAXED,
        label=_label("relaxed expert choice with buffers for all tokens"),
        look=lambda fields: (RED, ":"),
        unbounded=True,
        validate_shape=lambda fields, shape, num_experts: require(
            fields.capacity == 0, "router.capacity", fields.capacity, "0: its buffers hold all tokens of a group"
        ),
        presets=(),
    ),
    "straight_through": RouterKind(
        lambda fields, shape, lam: routers.StraightThroughExpertChoice(
            shape.k, shape.capacity, lam, fields.p, fields.score
        ),
        _label("hard expert choice with the relaxed gradient"),
        lambda fields: (PURPLE, "--"),
        setting=_relaxed_setting,
        reads=("score", "p", "lam", "hard_after"),
        same_score=True,
        validate_shape=_validate_exact,
        presets=(),
    ),
    "balanced": RouterKind(
        lambda fields, shape, lam: routers.BalancedExpertChoice(
            shape.k, shape.capacity, fields.limit, lam, fields.p, fields.score
        ),
        _label("balanced plan"),
        lambda fields: (GREEN, "--"),
        setting=_balanced_setting,
        reads=("score", "p", "lam", "hard_after", "limit"),
        same_score=True,
        validate=lambda fields: require(fields.limit > 0, "router.limit", fields.limit, "positive"),
        validate_shape=_validate_balance,
        presets=("demo",),
    ),
    "token_choice": RouterKind(
        lambda fields, shape, lam: routers.TokenChoice(fields.selected, shape.capacity, fields.priority),
        lambda fields: f"token choice, {fields['selected']} experts",
        lambda fields: (GREY, "-"),
        reads=("selected", "priority", "auxiliary"),
        auxiliary=True,
        validate=_validate_token_choice,
        validate_shape=lambda fields, shape, num_experts: require(
            fields.selected <= num_experts, "router.selected", fields.selected, f"at most the {num_experts} experts"
        ),
    ),
    "soft": RouterKind(
        lambda fields, shape, lam: routers.SoftMoe(shape.capacity),
        lambda fields: "Soft MoE",
        ignores=("moe.dispatcher",),
        presets=(),
    ),
    "dense": RouterKind(
        lambda fields, shape, lam: routers.Dense(shape.tokens, shape.capacity),
        lambda fields: "no experts: a dense MLP of equal cost",
        lambda fields: (GREY, ":"),
        ignores=("router.noise", "moe.dispatcher"),
        presets=("demo",),
    ),
    # What experts can be worth at all: where it is as good as the others, no router can show.
    "none": RouterKind(
        lambda fields, shape, lam: routers.Dense(shape.tokens, slots=0),
        lambda fields: "neither experts nor MLP",
        lambda fields: (GREY, "-."),
        ignores=(
            *("router.k", "router.factor", "router.multiple_of", "router.capacity", "router.noise"),
            *("moe.num_experts", "moe.dispatcher"),
        ),
        presets=(),
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
