"""RigL (Evci et al. 2020, "Rigging the lottery"): sparse training with a mask that is rewired at intervals."""

import jax
import jax.numpy as jnp
import ml_collections

import ops
from experiments.core.config import require
from experiments.mnist_pruning.methods.method import Method, PruningMethod, by_mask
from experiments.mnist_pruning.methods.schedules import num_kept


def drop_fraction(progress: jax.Array, drop: float, until: float) -> jax.Array:
    """Returns the share of the weights to drop: `drop / 2 (1 + cos(pi t / T_end))`."""
    return drop / 2 * (1.0 + jnp.cos(jnp.pi * progress / until))


def rewired(w: jax.Array, mask: jax.Array, gradient: jax.Array, num_dropped: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns weights [n] and mask [n] after the smallest weights drop out and those with the largest gradient grow.

    A growing weight starts at 0. A weight that drops out may grow again at once, and then keeps its value.
    """
    k = jnp.sum(mask)
    left = ops.hard_topk_mask(jnp.where(mask > 0, jnp.abs(w), -1.0), k - num_dropped)
    grown = ops.hard_topk_mask(jnp.where(left > 0, jnp.inf, jnp.abs(gradient)), k)
    return w * mask * grown, grown


def _make(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Starts from a random mask and rewires it every `density_schedule.every` steps until `rigl.until` of training.

    Weights outside of the mask are 0 and have a gradient, by which they grow; the optimizer has no memory of a weight
    that grows. Differs from the paper: weights are also updated in a step that changes the mask; and densities are not
    of Erdos-Renyi kind, but the same in all matrices, or with one budget whatever dropping and growing make them.
    """
    fields, every = config.rigl, config.density_schedule.every

    def first(w: jax.Array, key: jax.Array) -> jax.Array:
        return ops.hard_topk_mask(jax.random.uniform(key, w.shape, w.dtype), num_kept(config.density, w.size))

    def weights(w: jax.Array, mask: jax.Array) -> jax.Array:
        return ops.straight_through(w * mask, w)  # all weights have a gradient

    def after_update(
        w: jax.Array, mask: jax.Array, gradient: jax.Array, progress: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        step = jnp.round(progress * total_steps)
        due = (step % every == 0) & (step < fields.until * total_steps)
        num_dropped = jnp.floor(drop_fraction(progress, fields.drop, fields.until) * num_kept(config.density, w.size))
        return jax.lax.cond(due, lambda: rewired(w, mask, gradient, num_dropped), lambda: (w * mask, mask))

    # The optimizer's state of weights outside the mask is cleared in every step.
    return by_mask(weights, first, after_update)


def _validate(config: ml_collections.ConfigDict) -> None:
    for field, value in config.rigl.items():
        require(0 < value <= 1, f"rigl.{field}", value, "in (0, 1]")


RIGL = PruningMethod(_make, reads=("rigl", "density_schedule.every"), validate=_validate)
