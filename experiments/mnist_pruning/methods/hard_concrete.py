"""Hard-concrete L0 gates (Louizos et al. 2018)."""

import jax
import jax.numpy as jnp
import ml_collections
import optax

from experiments.core.config import require
from experiments.mnist_pruning.methods.method import Method, PruningMethod, State
from experiments.mnist_pruning.methods.schedules import cubic_density
from ops.baselines import gates


def _make(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Multiplies weights by gates whose expected density a multiplier drives to the target.

    The penalty of a layer is an augmented Lagrangian, `mu excess + damping / 2 excess^2`, where `excess` is its
    expected density minus a target that falls from 1 to `density`. Training descends in weights and gates and ascends
    in `mu`. The target falls slowly because a shut gate hardly opens again. The gates train by Adam, as in their paper:
    by SGD a gate would hardly move, as its share of the layer's density is 1 / n. The reported training density is the
    fraction of deterministic gates that are not 0.
    """
    fields = config.hard_concrete
    target = cubic_density(config.density)

    def init(w: jax.Array, key: jax.Array) -> State:
        # 2 opens a gate with probability 0.97.
        return {"log_alpha": jnp.full_like(w, 2.0), "multiplier": jnp.zeros((), w.dtype)}

    def weights(w: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        log_alpha = state["log_alpha"]
        if key is None:
            return w * gates.deterministic_gates(log_alpha)
        return w * gates.sample_gates(key, log_alpha)

    def penalty(w: jax.Array, state: State, progress: jax.Array) -> jax.Array:
        expected_density = gates.probability_open(state["log_alpha"]).mean()
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


def _validate(config: ml_collections.ConfigDict) -> None:
    for field, value in config.hard_concrete.items():
        require(value > 0, f"hard_concrete.{field}", value, "positive")


HARD_CONCRETE = PruningMethod(_make, reads=("hard_concrete",), validate=_validate)
