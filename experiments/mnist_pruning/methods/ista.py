"""Iterative soft-thresholding."""

import jax
import jax.numpy as jnp
import ml_collections

from experiments.mnist_pruning.methods.method import Method, PruningMethod, State
from experiments.mnist_pruning.methods.schedules import linear_density, num_kept
from ops.baselines.coding import soft_threshold_topk


def _make(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Follows each gradient step by the proximal step of an L1 penalty.

    The threshold of a step and layer leaves a given number of entries, which falls linearly from all of them to `k`. A
    fixed penalty, or one steered by the density, would miss the density: with batches of 128 the noise of the gradient
    lifts or drops a tenth of the entries at once.
    """
    density = linear_density(config.density)

    def after_update(w: jax.Array, state: State, gradient: jax.Array, progress: jax.Array) -> tuple[jax.Array, State]:
        k = jnp.maximum(density(progress) * w.size, num_kept(config.density, w.size))
        return soft_threshold_topk(w, k), state

    return Method(weights=lambda w, state, progress, key: w, after_update=after_update)


ISTA = PruningMethod(_make)
