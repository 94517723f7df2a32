"""Optimizers, learning rates and strengths of a relaxation, by config.

    config.optimizer.name            sgd or adam
                    .learning_rate   the rate, at its peak where it is scheduled
                    .momentum        of sgd (0: none); of adam, its b1
                    .b2              of adam (0.999)
                    .schedule        constant, cosine or linear (constant)
                    .warmup_steps    of a rate that rises linearly from 0 (0)
                    .weight_decay    decoupled: taken off scaled by the learning rate alone (0)
                    .decayed         the parameters that decay: all, or matrices: those of rank > 1, without the axis
                                     over layers where these are stacked (all)
                    .clip_norm       the largest global norm of a gradient; 0 for no limit (0)

The fields from b2 on may be left out; in brackets is what they are then.

The update of step t, from 0 on, is scaled by the rate at t. With a peak r, w steps of warm-up and T in all
(`config.steps`, or those of the epochs), it is r t / w while t < w, and from there on

    constant   r
    cosine     r (1 + cos(pi (t - w) / (T - w))) / 2
    linear     r (T - t) / (T - w)

Clipping comes first, of the gradient of the whole batch. SGD's momentum sums (m <- momentum m + g). Weight decay adds
weight_decay times the parameter to the direction, past momentum and Adam's normalisation.

The strength lam of a relaxation changes by `config.lam`, or another field of this kind:

    config.lam.schedule      constant (at start), or geometric (from start to end, step by step)
              .start, .end   positive

It may take a part of training only, at the end of which the relaxation is none: lam = 0.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import optax

from experiments.core.config import require, require_one_of

NAMES = ("sgd", "adam")
SCHEDULES = ("constant", "cosine", "linear")
LAM_SCHEDULES = ("constant", "geometric")
DECAYED: dict[str, Callable[[int], bool]] = {  # of the rank
    "all": lambda rank: True,
    "matrices": lambda rank: rank > 1,
}
_DEFAULTS = {
    "b2": 0.999,
    "schedule": "constant",
    "warmup_steps": 0,
    "weight_decay": 0.0,
    "decayed": "all",
    "clip_norm": 0.0,
}


def _fields(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    return ml_collections.ConfigDict(_DEFAULTS | config.optimizer.to_dict())


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.optimizer`."""
    fields = _fields(config)

    def require_field(condition: bool, name: str, allowed: str) -> None:
        require(condition, f"optimizer.{name}", fields[name], allowed)

    for name, allowed in {"name": NAMES, "schedule": SCHEDULES, "decayed": DECAYED}.items():
        require_one_of(f"optimizer.{name}", fields[name], allowed)
    require_field(fields.learning_rate > 0, "learning_rate", "positive")
    for name in ("momentum", "b2"):
        require_field(0 <= fields[name] < 1, name, "in [0, 1)")
    for name in ("weight_decay", "clip_norm"):
        require_field(fields[name] >= 0, name, "at least 0")
    steps = config.get("steps")
    if steps is None:
        require_field(fields.warmup_steps >= 0, "warmup_steps", "at least 0")
    else:
        require_field(0 <= fields.warmup_steps < steps, "warmup_steps", f"in [0, {steps}), {steps} being config.steps")


def make(
    config: ml_collections.ConfigDict, total_steps: int | None = None, stacked: Collection[str] = ()
) -> optax.GradientTransformation:
    """Clipping, then the direction of SGD or Adam, then weight decay, then the learning rate.

    Args:
      config: valid; `UsageError` if warm-up takes all of the steps.
      total_steps: of the run; `config.steps` if left out.
      stacked: names of parts of the parameters whose first axis is over layers that are alike (`nn.scan`).
    """
    fields = _fields(config)
    parts = []
    if fields.clip_norm:
        parts.append(optax.clip_by_global_norm(fields.clip_norm))
    if fields.name == "adam":
        parts.append(optax.scale_by_adam(b1=fields.momentum, b2=fields.b2))
    elif fields.momentum:
        parts.append(optax.trace(decay=fields.momentum))
    if fields.weight_decay:
        parts.append(optax.add_decayed_weights(fields.weight_decay, mask=_decays(DECAYED[fields.decayed], stacked)))
    return optax.chain(*parts, optax.scale_by_learning_rate(_schedule(config, total_steps)))


def _decays(rule: Callable[[int], bool], stacked: Collection[str]) -> Callable[[Any], Any]:
    def decays(path: tuple[Any, ...], parameter: jax.Array) -> bool:
        return rule(parameter.ndim - any(getattr(part, "key", None) in stacked for part in path))

    return lambda params: jax.tree_util.tree_map_with_path(decays, params)


def learning_rate(config: ml_collections.ConfigDict, step: int, total_steps: int | None = None) -> float:
    """The rate that scales the update of step number `step`, from 0; `total_steps` as for `make`."""
    schedule = _schedule(config, total_steps)
    if not callable(schedule):
        return schedule
    with jax.numpy_dtype_promotion("standard"):
        return float(schedule(step))


def _schedule(config: ml_collections.ConfigDict, total_steps: int | None) -> float | optax.Schedule:
    """A number where the rate is constant: optax then keeps no count of steps."""
    fields = _fields(config)
    peak, warmup = fields.learning_rate, fields.warmup_steps
    if fields.schedule == "constant" and not warmup:
        return peak
    steps = config.steps if total_steps is None else total_steps
    require(warmup < steps, "optimizer.warmup_steps", warmup, f"less than the {steps} steps of the run")
    after = {  # of the steps since the end of warm-up
        "constant": optax.constant_schedule(peak),
        "cosine": optax.cosine_decay_schedule(peak, steps - warmup),
        "linear": optax.linear_schedule(peak, 0.0, steps - warmup),
    }[fields.schedule]
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), after], [warmup]) if warmup else after


def validate_lam(lam: ml_collections.ConfigDict, field: str = "lam", schedules: Sequence[str] = LAM_SCHEDULES) -> None:
    """Checks `config.FIELD`; `schedules` are those above, and what an experiment has beside them."""
    require_one_of(f"{field}.schedule", lam.schedule, schedules)
    for name in ("start", "end"):
        require(lam[name] > 0, f"{field}.{name}", lam[name], "positive")


def lam_schedule(lam: ml_collections.ConfigDict, hard_after: float = 1.0) -> Callable[[jax.Array], jax.Array]:
    """`lam(progress)`: `start` throughout, or geometrically from `start` to `end`.

    With `hard_after` < 1, in (0, 1), it comes to its end at that share of training, and is 0 from there on.
    """

    def relaxed(progress: jax.Array) -> jax.Array:
        if lam.schedule == "constant":
            return jnp.full_like(progress, lam.start)
        return lam.start * (lam.end / lam.start) ** progress

    if hard_after == 1:
        return relaxed
    return lambda progress: jnp.where(progress < hard_after, relaxed(jnp.minimum(progress / hard_after, 1.0)), 0.0)
