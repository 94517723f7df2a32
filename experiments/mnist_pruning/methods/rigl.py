"""RigL (Evci et al. 2020, "Rigging the lottery"): sparse from the first step to the last, rewired now and then."""

import jax
import jax.numpy as jnp
import ml_collections

import ops
from experiments.core.config import require
from experiments.mnist_pruning.methods.method import Method, PruningMethod, by_mask
from experiments.mnist_pruning.methods.schedules import num_kept


def drop_fraction(progress: jax.Array, drop: float, until: float) -> jax.Array:
    """Returns the share of the weights that is dropped: `drop / 2 (1 + cos(pi t / T_end))`."""
    return drop / 2 * (1.0 + jnp.cos(jnp.pi * progress / until))


def rewired(w: jax.Array, mask: jax.Array, gradient: jax.Array, num_dropped: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Weights [n] and mask [n] after the smallest weights are dropped, and those of the largest gradient grown.

    A weight that grows starts at 0. One that was dropped may grow again at once, and then keeps its value.
    """
    k = jnp.sum(mask)
    left = ops.hard_topk_mask(jnp.where(mask > 0, jnp.abs(w), -1.0), k - num_dropped)
    grown = ops.hard_topk_mask(jnp.where(left > 0, jnp.inf, jnp.abs(gradient)), k)
    return w * mask * grown, grown


def _make(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """A random mask, rewired every `density_schedule.every` steps until `rigl.until` of training.

    Weights outside of the mask are 0 and have a gradient, by which they grow; the optimizer's memory of a weight that
    grows begins anew. Differs from the paper: the step at which a mask changes also learns; and all matrices have the
    same density, or, of the whole network's budget, what comes of dropping and growing across all of them, while the
    paper's are of Erdos-Renyi kind.
    """
    fields, every = config.rigl, config.density_schedule.every

    def first(w: jax.Array, key: jax.Array) -> jax.Array:
        return ops.hard_topk_mask(jax.random.uniform(key, w.shape, w.dtype), num_kept(config.density, w.size))

    def weights(w: jax.Array, mask: jax.Array) -> jax.Array:
        return ops.straight_through(w * mask, w)  # so that the gradient is that of all weights

    def after_update(
        w: jax.Array, mask: jax.Array, gradient: jax.Array, progress: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        step = jnp.round(progress * total_steps)
        due = (step % every == 0) & (step < fields.until * total_steps)
        num_dropped = jnp.floor(drop_fraction(progress, fields.drop, fields.until) * num_kept(config.density, w.size))
        return jax.lax.cond(due, lambda: rewired(w, mask, gradient, num_dropped), lambda: (w * mask, mask))

    # The optimizer's state of weights outside the mask is cleared in every step: only those inside learn.
    return by_mask(weights, first, after_update)


def _validate(config: ml_collections.ConfigDict) -> None:
    for field, value in config.rigl.items():
        require(0 < value <= 1, f"rigl.{field}", value, "in (0, 1]")


RIGL = PruningMethod(_make, reads=("rigl", "density_schedule.every"), validate=_validate)
