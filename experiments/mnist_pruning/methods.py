"""The ways to prune, by the name that `config.method` has for them.

To add one: a function that makes it of a config, and an entry of METHODS.
"""

import jax
import jax.numpy as jnp
import ml_collections
import optax

import ops
from experiments.core.config import require, require_one_of
from experiments.core.report.style import BLACK, BLUE, GREY, SKY
from experiments.mnist_pruning import masks, relaxed
from experiments.mnist_pruning.method import Method, PruningMethod, State, num_kept, on_vector
from experiments.mnist_pruning.schedules import cubic_density, linear_density
from ops.baselines.coding import soft_threshold
from ops.baselines.gates import hard_concrete


def _dense(config: ml_collections.ConfigDict) -> Method:
    """No pruning."""
    del config
    return Method(weights=lambda kernel, state, progress, key: kernel)


def _hard(config: ml_collections.ConfigDict) -> Method:
    """Hard top-k in magnitude; only the entries kept have a gradient."""
    return on_vector(lambda w, k, progress: ops.hard_topk_mag(w, k), config.density)


def _hard_concrete(config: ml_collections.ConfigDict) -> Method:
    """L0 gates (Louizos et al. 2018) whose expected density a multiplier drives to the target.

    The penalty of a layer is an augmented Lagrangian, `mu excess + damping / 2 excess^2`, with the
    excess of its expected density over a target that falls from 1 to `density` (a gate once shut
    hardly opens again, so the target must not be undershot). The loss descends in weights and
    gates and ascends in `mu`. The gates learn by Adam, as in their paper: by SGD, each one's share
    of the layer's density, 1 / n, would move it imperceptibly. The training density reported is
    the fraction of deterministic gates that are not 0.
    """
    fields = config.hard_concrete
    target = cubic_density(config.density)

    def init(kernel: jax.Array) -> State:
        # 2 opens a gate with probability 0.97.
        return {"log_alpha": jnp.full_like(kernel, 2.0), "multiplier": jnp.zeros((), kernel.dtype)}

    def weights(kernel: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        del progress
        log_alpha = state["log_alpha"]
        if key is None:
            return kernel * hard_concrete.deterministic_gates(log_alpha)
        return kernel * hard_concrete.sample_gates(key, log_alpha)

    def penalty(state: State, progress: jax.Array) -> jax.Array:
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


def _ista(config: ml_collections.ConfigDict) -> Method:
    """Iterative soft thresholding: a gradient step, then the proximal step of an L1 penalty.

    The threshold of each step and layer is the one that leaves the number of entries asked for,
    which falls linearly from all of them to `k`. A penalty that is given, or steered by the
    density, ends near the density wanted at best: with batches of 128 the noise of the gradient
    lifts or drops a tenth of the entries at once.
    """
    density = linear_density(config.density)

    def project(kernel: jax.Array, progress: jax.Array) -> jax.Array:
        k = jnp.maximum(density(progress) * kernel.size, num_kept(config.density, kernel.size))
        return soft_threshold.soft_threshold_topk(kernel.ravel(), k).reshape(kernel.shape)

    return Method(weights=lambda kernel, state, progress, key: kernel, project=project)


# In the order of the tables.
METHODS = {
    "dense": PruningMethod(_dense, "dense", (GREY, "-"), cost=0.6),
    "hard": PruningMethod(_hard, "hard top-k", (BLUE, "-"), cost=1.6),
    "relaxed": relaxed.RELAXED,
    "straight_through": relaxed.STRAIGHT_THROUGH,
    "ot_straight_through": masks.OT_STRAIGHT_THROUGH,
    "mask_straight_through": masks.MASK_STRAIGHT_THROUGH,
    "hard_concrete": PruningMethod(
        _hard_concrete,
        "hard-concrete L0 gates",
        (SKY, ":"),
        "hard-concrete gates",
        validate=_validate_hard_concrete,
        cost=3.0,
    ),
    "ista": PruningMethod(_ista, "iterative soft-thresholding", (BLACK, ":"), "soft-thresholding", cost=1.6),
}


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields of all methods, whichever is used."""
    require_one_of("method", config.method, METHODS)
    require(0 < config.density <= 1, "density", config.density, "in (0, 1]")
    for method in METHODS.values():
        method.validate(config)
    if not METHODS[config.method].keeps_all:
        require(config.density < 1, "density", config.density, f"in (0, 1) for {config.method}")
