"""Top-KAST (Jayakumar et al. 2020, "Top-K always sparse training")."""

import jax
import jax.numpy as jnp
import ml_collections

import ops
from experiments.core.config import require
from experiments.mnist_pruning.methods.method import Method, PruningMethod, State
from experiments.mnist_pruning.methods.schedules import num_kept


def _make(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Uses the largest weights forward (A) and more of them backward (B), so that weights may replace others.

    The penalty keeps weights in B from growing at random: `topkast.penalty` times half the square of each weight in A,
    and 1 / density times as much for weights in B alone. Weights in neither have no gradient. Differs from the paper's
    experiments: A and B are chosen in each step, as its method says, not every hundred steps or so.
    """
    fields = config.topkast

    def among_largest(w: jax.Array, density: float) -> jax.Array:
        return ops.hard_topk_mask(jnp.abs(jax.lax.stop_gradient(w)), num_kept(density, w.size))

    def weights(w: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        forward = w * among_largest(w, config.density)
        # Evaluation has no key and no gradient.
        backward = max(fields.backward_density, config.density)
        return forward if key is None else ops.straight_through(forward, w * among_largest(w, backward))

    def penalty(w: jax.Array, state: State, progress: jax.Array) -> jax.Array:
        a = among_largest(w, config.density)
        b = among_largest(w, max(fields.backward_density, config.density))
        return fields.penalty / 2 * jnp.sum(jnp.square(w) * (a + (b - a) / config.density))

    return Method(weights, penalty=penalty)


def _validate(config: ml_collections.ConfigDict) -> None:
    fields = config.topkast
    require(0 < fields.backward_density <= 1, "topkast.backward_density", fields.backward_density, "in (0, 1]")
    require(fields.penalty >= 0, "topkast.penalty", fields.penalty, "at least 0")


TOPKAST = PruningMethod(_make, reads=("topkast",), validate=_validate)
