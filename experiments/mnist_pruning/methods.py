"""The ways to prune, by the name that `config.method` has for them.

To add one: a function that makes it of a config, and an entry of METHODS.
"""

from __future__ import annotations

import ml_collections
from etils import epy

from experiments.core.config import require, require_one_of
from experiments.core.kinds import Kinds
from experiments.core.report.style import BLACK, BLUE, GREY, SKY
from experiments.core.training.schedules import LAM_SCHEDULES
from experiments.mnist_pruning import masks, relaxed, schedules
from experiments.mnist_pruning.baselines import gradual, movement, rigl, soft_threshold, topkast
from experiments.mnist_pruning.method import Fields, Method, PruningMethod, State, Trial, baseline, by_number
from experiments.mnist_pruning.schedules import (
    EITHER,
    cubic_density,
    cubic_ends,
    linear_density,
    num_kept,
)

with epy.lazy_imports():  # --help does without them
    import jax
    import jax.numpy as jnp
    import optax

    import ops
    from experiments.mnist_pruning import pools
    from ops.baselines.coding import soft_threshold as proximal
    from ops.baselines.gates import hard_concrete


def _dense(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """No pruning."""
    del config, total_steps
    return Method(weights=lambda vector, state, progress, key: vector)


def _hard(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Hard top-k in magnitude; only the entries kept have a gradient."""
    del total_steps
    return by_number(ops.hard_topk_mag, config)


def _identity_straight_through(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Hard top-k in magnitude, whose gradient goes to all weights as if it were the identity (Bengio et al. 2013)."""
    del total_steps
    return by_number(lambda w, k: ops.straight_through(ops.hard_topk_mag(w, k), w), config)


def _hard_concrete(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """L0 gates (Louizos et al. 2018) whose expected density a multiplier drives to the target.

    The penalty of a layer is an augmented Lagrangian, `mu excess + damping / 2 excess^2`, with the
    excess of its expected density over a target that falls from 1 to `density` (a gate once shut
    hardly opens again, so the target must not be undershot). The loss descends in weights and
    gates and ascends in `mu`. The gates learn by Adam, as in their paper: by SGD, each one's share
    of the layer's density, 1 / n, would move it imperceptibly. The training density reported is
    the fraction of deterministic gates that are not 0.
    """
    del total_steps
    fields = config.hard_concrete
    target = cubic_density(config.density)

    def init(w: jax.Array, key: jax.Array) -> State:
        del key
        # 2 opens a gate with probability 0.97.
        return {"log_alpha": jnp.full_like(w, 2.0), "multiplier": jnp.zeros((), w.dtype)}

    def weights(w: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        del progress
        log_alpha = state["log_alpha"]
        if key is None:
            return w * hard_concrete.deterministic_gates(log_alpha)
        return w * hard_concrete.sample_gates(key, log_alpha)

    def penalty(w: jax.Array, state: State, progress: jax.Array) -> jax.Array:
        del w
        expected_density = hard_concrete.probability_open(state["log_alpha"]).mean()
        excess = expected_density - target(progress)
        return state["multiplier"] * excess + fields.damping / 2 * jnp.square(excess)

    return Method(
        weights,
        init=init,
        penalty=penalty,
        optimizers={
            "log_alpha": optax.adam(fields.learning_rate),
            "multiplier": optax.scale(fields.multiplier_rate),  # positive: ascent
        },
    )


def _validate_hard_concrete(config: ml_collections.ConfigDict) -> None:
    for field, value in config.hard_concrete.items():
        require(value > 0, f"hard_concrete.{field}", value, "positive")


def _ista(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Iterative soft thresholding: a gradient step, then the proximal step of an L1 penalty.

    The threshold of each step and layer is the one that leaves the number of entries asked for,
    which falls linearly from all of them to `k`. A penalty that is given, or steered by the
    density, ends near the density wanted at best: with batches of 128 the noise of the gradient
    lifts or drops a tenth of the entries at once.
    """
    del total_steps
    density = linear_density(config.density)

    def after_update(w: jax.Array, state: State, gradient: jax.Array, progress: jax.Array) -> tuple[jax.Array, State]:
        del gradient
        k = jnp.maximum(density(progress) * w.size, num_kept(config.density, w.size))
        return proximal.soft_threshold_topk(w, k), state

    return Method(weights=lambda w, state, progress, key: w, after_update=after_update)


_CONSTANT_OR_CUBIC: dict[str, Fields] = {"constant": {}} | cubic_ends(0.7)

# In the order of the tables.
METHODS = {
    "dense": PruningMethod(_dense, "dense", (GREY, "-"), cost=0.6),
    "hard": PruningMethod(
        _hard,
        "hard top-k",
        (BLUE, "-"),
        cost=1.6,
        best=lambda: {"hard": Trial(candidates=_CONSTANT_OR_CUBIC)},
        **EITHER,
    ),
    "relaxed": relaxed.RELAXED,
    "straight_through": relaxed.STRAIGHT_THROUGH,
    "ot_straight_through": masks.OT_STRAIGHT_THROUGH,
    "mask_straight_through": masks.MASK_STRAIGHT_THROUGH,
    "hard_concrete": PruningMethod(
        _hard_concrete,
        "hard-concrete L0 gates",
        (SKY, ":"),
        "hard-concrete gates",
        reads=("hard_concrete",),
        validate=_validate_hard_concrete,
        cost=3.0,
    ),
    "ista": PruningMethod(_ista, "iterative soft-thresholding", (BLACK, ":"), "soft-thresholding", cost=1.6),
    "identity_straight_through": baseline(
        "identity_straight_through",
        _identity_straight_through,
        "hard, gradient to all",
        (GREY, "-."),
        _CONSTANT_OR_CUBIC,
        cost=1.6,
        **EITHER,
    ),
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
    """Checks the fields of all methods, whichever is used."""
    require_one_of("method", config.method, METHODS)
    require(0 < config.density <= 1, "density", config.density, "in (0, 1]")
    require_one_of("budget", config.budget, pools.BUDGETS)
    schedules.validate(config)
    for method in METHODS.values():
        method.validate(config)
    followed, name = METHODS[config.method].density_schedules, config.density_schedule.name
    require(name in followed, "density_schedule.name", name, f"{' or '.join(followed)} for {config.method}")
    if not METHODS[config.method].keeps_all:
        require(config.density < 1, "density", config.density, f"in (0, 1) for {config.method}")
