"""The dense network; hard top-k in magnitude with its own gradient or that of the identity; ST-3."""

import jax
import jax.numpy as jnp
import ml_collections

import ops
from experiments.mnist_pruning.methods.method import Method, PruningMethod, by_number
from experiments.mnist_pruning.methods.schedules import DENSITY_SCHEDULES, FALLING


def _st3(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Applies ST-3 (Vanderschueren and De Vleeschouwer 2022): a soft threshold with the gradient of the identity.

    The threshold is the largest magnitude that is not kept. The result is scaled by 1.01 / (share + 0.01), where
    `share` is the kept share of the sum of all magnitudes. Differs from the paper: each budget has one scale, while the
    authors' code has one for each unit.
    """

    def soft(w: jax.Array, k: jax.Array | int) -> jax.Array:
        kept_weights = ops.hard_topk_mag(w, k)
        threshold = jnp.max(jnp.abs(w - kept_weights))
        share = jnp.sum(jnp.abs(kept_weights)) / jnp.maximum(jnp.sum(jnp.abs(w)), jnp.finfo(w.dtype).tiny)
        shrunk = jnp.sign(w) * jax.nn.relu(jnp.abs(w) - threshold)
        return ops.straight_through(1.01 / (share + 0.01) * shrunk, w)

    return by_number(soft, config)


DENSE = PruningMethod(lambda config, total_steps: Method(lambda w, state, progress, key: w))
# Only kept entries have a gradient.
HARD = PruningMethod(
    lambda config, total_steps: by_number(ops.hard_topk_mag, config),
    reads=FALLING,
    density_schedules=DENSITY_SCHEDULES,
)
# All weights have the gradient of the identity (Bengio et al. 2013).
IDENTITY_STRAIGHT_THROUGH = PruningMethod(
    lambda config, total_steps: by_number(lambda w, k: ops.straight_through(ops.hard_topk_mag(w, k), w), config),
    reads=FALLING,
    density_schedules=DENSITY_SCHEDULES,
)
ST3 = PruningMethod(_st3, reads=FALLING, density_schedules=("cubic",))
