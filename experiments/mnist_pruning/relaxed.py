"""The paper's operator to prune with: forward and backward, or backward alone behind a hard top-k."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import ml_collections
from etils import epy

from experiments.core.config import require, require_one_of
from experiments.core.report.markdown import number, p_name
from experiments.core.report.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, Look
from experiments.core.training.schedules import LAM_SCHEDULES, lam_schedule, validate_lam
from experiments.mnist_pruning.method import Config, Fields, Method, PruningMethod, State, Trial, in_name
from experiments.mnist_pruning.schedules import (
    DENSITY_SCHEDULES,
    FALLING,
    cubic_density,
    cubic_setting,
    density_of,
    falling_to,
    kept,
    num_kept,
)

with epy.lazy_imports():  # --help does without them
    import jax
    import jax.numpy as jnp

    import ops
    from experiments.mnist_pruning import published
    from ops import pruning

PAPER_LAM = 1e-4
P = {"p2": 2.0, "p4_3": 4 / 3}
PUBLISHED = "published_jacobian"  # of `config.form`
# Fields of runs that were made before there were these.
EARLIER: Fields = {"form": "operator", "hard_after": 1.0, "lam_times_size": False}
SUPPORT = "support"  # of `config.lam.schedule`
_READS = ("p", "lam", "debias", "lam_times_size", "form", "hard_after", *FALLING)


@dataclasses.dataclass(frozen=True)
class Selection:
    """What weights [n] are selected by in a step."""

    operator: Callable[[jax.Array], jax.Array]  # in magnitude, of weights
    mask: Callable[[jax.Array], jax.Array]  # of scores
    k: jax.Array | int
    lam: jax.Array


# What `config.form` makes of weights [n]: what the paper means, and what else it, or its code, might.
FORMS: dict[str, Callable[[jax.Array, Selection], jax.Array]] = {
    "operator": lambda w, by: by.operator(w),
    "mask": lambda w, by: w * by.mask(jnp.abs(w)),
    "mask_of_squares": lambda w, by: w * by.mask(jnp.square(w)),
    "stop_gradient": lambda w, by: w * jax.lax.stop_gradient(_ratio(by.operator(w), w)),
    PUBLISHED: lambda w, by: published.with_dykstras_jacobian(w, by.operator(w), by.k, by.lam),
}
# What rescaling says nothing of.
_MASKS = ("mask", "mask_of_squares")


def _ratio(kept: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.where(w == 0, 0.0, kept / jnp.where(w == 0, 1.0, w))


def _method(config: ml_collections.ConfigDict, *, straight_through: bool = False) -> Method:
    """The paper's operator, or a hard top-k forward and its gradient backward; lam by the progress of training."""
    density, strength = density_of(config), _strength(config)

    def weights(w: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        del state, key
        share, lam = density(progress) if callable(density) else density, strength(w, progress)
        pruner = pruning.Pruner(
            density=share,
            lam=lam,
            p=config.p,
            debias=config.debias,
            straight_through=straight_through,
            include=lambda path, leaf: True,
        )
        mask = functools.partial(ops.topk_mask, density=share, lam=lam, p=config.p)
        return FORMS[config.form](w, Selection(pruner, mask, kept(config, w.size)(progress), lam))

    return Method(weights)


def _strength(config: ml_collections.ConfigDict) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """`lam` of weights, by the progress of training: a schedule's own, or what makes so many of them other than 0."""
    if config.lam.schedule != SUPPORT:
        falling = lam_schedule(config.lam, config.hard_after)
        return lambda w, progress: falling(progress) * (float(w.size) if config.lam_times_size else 1.0)
    density = cubic_density(config.density, end=config.hard_after)

    def of_support(w: jax.Array, progress: jax.Array) -> jax.Array:
        k = num_kept(config.density, w.size)
        support = falling_to(k, density, w.size)(progress)
        lam = ops.lam_of_support(w, k, support, in_magnitude=True, p=config.p)
        return jnp.where(progress < config.hard_after, lam, 0.0)

    return of_support


def _validate(config: ml_collections.ConfigDict) -> None:
    require(1 < config.p <= 2, "p", config.p, "in (1, 2]")
    validate_lam(config.lam, schedules=(*LAM_SCHEDULES, SUPPORT))
    require_one_of("form", config.form, FORMS)
    require(0 < config.hard_after <= 1, "hard_after", config.hard_after, "in (0, 1]")
    if config.lam.schedule == SUPPORT:
        for field, only in {"form": "operator", "lam_times_size": False}.items():
            require(config[field] == only, field, config[field], f"{only} with lam.schedule={SUPPORT!r}")
        name = config.density_schedule.name
        require(name == "constant", "density_schedule.name", name, f"constant with lam.schedule={SUPPORT!r}")
    if config.form in _MASKS:
        require(not config.debias, "debias", config.debias, f"False with form={config.form!r}")
    if config.form == PUBLISHED:
        for field, only in {"p": 2.0, "debias": False, "hard_after": 1.0}.items():
            require(config[field] == only, field, config[field], f"{only} with form={PUBLISHED!r}")


def is_annealed(config: Config) -> bool:
    """Whether lam falls in the course of training."""
    return config["method"] == "relaxed" and config["lam"]["schedule"] in ("geometric", SUPPORT)


def kind(config: Config) -> str:
    """What tells it from other relaxed operators, where what is chosen for each does not count."""
    by_support = ["lam by the support"] if config["lam"]["schedule"] == SUPPORT else []
    return ", ".join([f"p = {p_name(config['p'])}", *by_support])


def is_papers(config: Config) -> bool:
    """Whether the operator and lam are those of the paper's Section 6, from the first step to the last."""
    if config["method"] != "relaxed":
        return False
    lam = (config["lam"]["schedule"], config["lam"]["start"], _field(config, "lam_times_size"))
    operator = (config["debias"], _field(config, "form"), _field(config, "hard_after"))
    return (
        lam == ("constant", PAPER_LAM, False)
        and operator == (False, "operator", 1.0)
        and config.get("density_schedule", {"name": "constant"})["name"] == "constant"
    )


def _field(config: Config, name: str) -> Any:
    """Of a run's config; runs that were made before there was such a field have none."""
    return config.get(name, EARLIER[name])


def _setting(config: Config) -> list[str]:
    lam = config["lam"]
    times = " times the size" if _field(config, "lam_times_size") else ""
    start, end = (f"{number(lam[bound])}{times}" for bound in ("start", "end"))
    strengths = {"geometric": f"lam {start} to {end}", SUPPORT: "lam by the support, which falls by a cubic"}
    strength = strengths.get(lam["schedule"], f"lam = {start}")
    rescaled = ["rescaled"] if config["debias"] else []
    form = _field(config, "form")
    other = [] if form == "operator" else [form.replace("_", " ")]
    hard_after = _field(config, "hard_after")
    hard = [f"hard after {100 * hard_after:g} % of training"] if hard_after < 1 else []
    return [f"p = {p_name(config['p'])}", strength, *rescaled, *other, *hard, *cubic_setting(config)]


def _legend(config: Config) -> str:
    p, lam = p_name(config["p"]), number(config["lam"]["start"])
    if config["lam"]["schedule"] == SUPPORT:
        return f"relaxed, p = {p}, $\\lambda$ by the support"
    if is_annealed(config):
        return f"relaxed, p = {p}, $\\lambda$ {lam} → {number(config['lam']['end'])}"
    paper = " (paper)" if is_papers(config) else ""
    return f"relaxed, p = {p}, $\\lambda$ = {lam}{paper}"


_ANNEALED = {2.0: ORANGE, 3 / 2: SKY, 4 / 3: PURPLE, 5 / 4: BLACK}  # by p
_BY_SUPPORT = {2.0: RED, 3 / 2: BLUE, 4 / 3: GREEN}


def _look(config: Config) -> Look:
    """Solid for the paper's own lines, broken for what it has not."""
    second = config["p"] == 2
    if config["lam"]["schedule"] == SUPPORT:
        return _BY_SUPPORT.get(config["p"], GREEN), "--"
    if is_annealed(config):
        return _ANNEALED.get(config["p"], BLUE), "--"
    return (RED if second else GREEN), "-" if is_papers(config) else ":"


def papers(p: float) -> Fields:
    """As in the paper: lam = 1e-4, and selected weights shrunk."""
    return {"p": p, "debias": False, "lam.schedule": "constant", "lam.start": PAPER_LAM}


def _rescaled(p: float) -> Fields:
    """At large lam only the rescaled operator keeps the weights' size, so the sweeps use that."""
    return {"p": p, "debias": True, "lam.schedule": "constant"}


def _annealed(p: float, start: float) -> Fields:
    """Starts close to the identity, so dense, and hardens."""
    return _rescaled(p) | {"lam.schedule": "geometric", "lam.start": start, "lam.end": 1e-3}


def _steady(p: float, start: float) -> Fields:
    """As `_annealed`, but lam stays above what makes steps at the threshold large; hard for the last tenth.

    A step moves a pair at the threshold by the learning rate over 2 lam (`report/why.py`). At a rate of 0.05 and lam =
    1e-3 that is 25 times the difference of gradients, and now and then a network is lost in its last epochs.
    """
    return _annealed(p, start) | {"lam.end": 1e-2, "hard_after": 0.9}


def _starts(label: str, *lams: float) -> dict[str, Fields]:
    return {f"{label}{in_name(lam)}": {"lam.start": lam} for lam in lams}


def _trials() -> dict[str, Trial]:
    """The paper's settings; lam at its best, constant and annealed."""
    trials = {f"relaxed-{name}": Trial(papers(p)) for name, p in P.items()}
    for name, p in P.items():
        trials[f"constant-{name}"] = Trial(_rescaled(p), _starts("lam", 1e-4, 1e-3, 1e-2, 1e-1, 1.0))
        trials[f"annealed-{name}"] = Trial(_annealed(p, 1.0), _starts("start", 1.0, 3.0, 10.0))
    return trials


def _best() -> dict[str, Trial]:
    """Of each p two values of lam to start at; or two shares of training that the support takes to fall."""
    exponents = {"p2": 2.0, "p3_2": 3 / 2, "p4_3": 4 / 3, "p5_4": 5 / 4}
    starts = {"p2": (10.0, 3.0), "p3_2": (10.0, 3.0), "p4_3": (3.0, 1.0), "p5_4": (3.0, 1.0)}
    ends = {f"end{share:g}": {"hard_after": share} for share in (0.7, 0.9)}
    annealed = {
        f"annealed-{name}": Trial(_steady(p, 1.0), _starts("start", *starts[name])) for name, p in exponents.items()
    }
    by_support = {
        f"support-{name}": Trial(_rescaled(exponents[name]) | {"lam.schedule": SUPPORT}, ends)
        for name in ("p2", "p3_2", "p4_3")
    }
    return annealed | by_support


RELAXED = PruningMethod(
    lambda config, total_steps: _method(config),
    "relaxed top-k",
    _look,
    _legend,
    setting=_setting,
    validate=_validate,
    reads=_READS,
    density_schedules=DENSITY_SCHEDULES,
    variants={"annealed": _annealed(4 / 3, 3.0)},
    cost=3.4,
    fixed=lambda: {
        **{f"relaxed-{name}": papers(p) for name, p in P.items()},
        "annealed-p2": _steady(2.0, 10.0),
        "annealed-p4_3": _steady(4 / 3, 3.0),
    },
    trials=_trials,
    best=_best,
)
STRAIGHT_THROUGH = PruningMethod(
    lambda config, total_steps: _method(config, straight_through=True),
    "hard, relaxed gradient",
    (SKY, "--"),
    setting=_setting,
    reads=_READS,
    density_schedules=DENSITY_SCHEDULES,
    fixed=lambda: {"straight_through": _rescaled(2.0) | {"lam.start": 0.1}},
    trials=lambda: {"straight_through": Trial(_rescaled(2.0), _starts("lam", 1e-2, 1e-1, 1.0))},
)
