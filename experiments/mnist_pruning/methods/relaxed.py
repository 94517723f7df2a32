"""Pruning by the paper's operator: forward and backward, or only backward with a hard top-k forward."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_collections

import ops
from experiments.core.config import require, require_one_of
from experiments.core.training.optimizer import LAM_SCHEDULES, lam_schedule, validate_lam
from experiments.mnist_pruning.methods import published
from experiments.mnist_pruning.methods.method import Method, PruningMethod, State
from experiments.mnist_pruning.methods.schedules import (
    DENSITY_SCHEDULES,
    FALLING,
    cubic_density,
    density_of,
    falling_to,
    kept,
    num_kept,
)

PUBLISHED = "published_jacobian"  # a value of `config.form`
SUPPORT = "support"  # a value of `config.lam.schedule`
_READS = ("p", "lam", "debias", "lam_times_size", "form", "hard_after", *FALLING)


@dataclasses.dataclass(frozen=True)
class Selection:
    """The relaxed selection of weights [n] in a step."""

    operator: Callable[[jax.Array], jax.Array]  # the top-k in magnitude of weights
    mask: Callable[[jax.Array], jax.Array]  # the top-k mask of scores
    k: jax.Array | int
    lam: jax.Array


# The pruned weights [n] by `config.form`: the paper's operator, and other readings of the paper and its code.
FORMS: dict[str, Callable[[jax.Array, Selection], jax.Array]] = {
    "operator": lambda w, selection: selection.operator(w),
    "mask": lambda w, selection: w * selection.mask(jnp.abs(w)),
    "mask_of_squares": lambda w, selection: w * selection.mask(jnp.square(w)),
    "stop_gradient": lambda w, selection: w * jax.lax.stop_gradient(_ratio(selection.operator(w), w)),
    PUBLISHED: lambda w, selection: published.with_dykstras_jacobian(
        w, selection.operator(w), selection.k, selection.lam
    ),
}
_MASKS = ("mask", "mask_of_squares")  # forms that rescaling does not change


def _ratio(kept: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.where(w == 0, 0.0, kept / jnp.where(w == 0, 1.0, w))


def _method(config: ml_collections.ConfigDict, *, straight_through: bool = False) -> Method:
    """Returns the paper's operator, or with `straight_through` a hard top-k forward and its gradient backward."""
    density, lam_of = density_of(config), _lam_of(config)

    def weights(w: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        share, lam = density(progress) if callable(density) else density, lam_of(w, progress)

        def operator(w: jax.Array) -> jax.Array:
            soft = ops.topk_mag(w, density=share, lam=lam, p=config.p, debias=config.debias)
            return ops.straight_through(ops.hard_topk_mag(w, density=share), soft) if straight_through else soft

        mask = functools.partial(ops.topk_mask, density=share, lam=lam, p=config.p)
        return FORMS[config.form](w, Selection(operator, mask, kept(config, w.size)(progress), lam))

    return Method(weights)


def _lam_of(config: ml_collections.ConfigDict) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Returns `lam(weights, progress)`: by its schedule, or such that a scheduled number of weights is not 0."""
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


RELAXED = PruningMethod(
    lambda config, total_steps: _method(config),
    reads=_READS,
    validate=_validate,
    density_schedules=DENSITY_SCHEDULES,
)
STRAIGHT_THROUGH = PruningMethod(
    lambda config, total_steps: _method(config, straight_through=True),
    reads=_READS,
    validate=_validate,
    density_schedules=DENSITY_SCHEDULES,
)
