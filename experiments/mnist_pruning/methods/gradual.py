"""Gradual magnitude pruning (Zhu and Gupta 2017, "To prune, or not to prune")."""

import jax
import jax.numpy as jnp
import ml_collections

import ops
from experiments.mnist_pruning.methods.method import Method, PruningMethod, by_mask
from experiments.mnist_pruning.methods.schedules import kept


def _make(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Keeps the largest weights by a mask, fewer every `density_schedule.every` steps by the cubic schedule.

    Masked weights are not trained and keep their values, so one comes back when the kept ones shrink below it. After
    the end of the schedule the mask stays. Differs from the paper: the optimizer forgets the momentum of masked
    weights, and the last mask is made when the schedule ends, even if that is no multiple of `every`.
    """
    fields = config.density_schedule

    def weights(w: jax.Array, mask: jax.Array) -> jax.Array:
        return w * jax.lax.stop_gradient(mask)

    def after_update(
        w: jax.Array, mask: jax.Array, gradient: jax.Array, progress: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        step, begin, end = (jnp.round(share * total_steps) for share in (progress, fields.begin, fields.end))
        due = (step == end) | ((step % fields.every == 0) & (step >= begin) & (step < end))
        k = kept(config, w.size)
        return w, jax.lax.cond(due, lambda: ops.hard_topk_mask(jnp.abs(w), k(step / total_steps)), lambda: mask)

    return by_mask(weights, lambda w, key: jnp.ones_like(w), after_update)


GRADUAL = PruningMethod(_make, reads=("density_schedule",), density_schedules=("cubic",))
