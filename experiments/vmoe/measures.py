"""What a router does, in numbers: one of each per group, [G] float32."""

import jax
import jax.numpy as jnp
from jax import Array

from experiments.vmoe.routers import Slots

SERVED_BY = (1, 2, 4)  # experts at least


def measure(routed: Slots) -> dict[str, Array]:
    """Metrics of the routing of each group; what is counted has a weight above 0.

    experts_per_token_{mean,min,max}   over the tokens of the group, counting what is in the buffers
    served_by_T                        share of the tokens in the buffers of at least T experts, in percent
    support                            tokens selected by an expert, in its buffer or not; mean over the experts
    dropped_mass                       share of the weights that found no room, in percent
    smallest_gate                      of a token in a buffer
    entropy                            of the gates of a token, in nats; mean over the tokens
    """
    routed = jax.lax.stop_gradient(routed)
    num_tokens = routed.gates.shape[1]
    used = routed.weight > 0

    def count(token: Array, used: Array) -> Array:
        return jnp.zeros(num_tokens, jnp.float32).at[token.ravel()].add(used.ravel().astype(jnp.float32))

    experts_of = jax.vmap(count)(routed.token, used)  # [G, S]
    gates = jnp.take_along_axis(routed.gates.swapaxes(1, 2), routed.token, axis=-1)
    mass = routed.mass.sum(axis=1)
    # Where all weights are 0 nothing can be dropped.
    kept = jnp.where(mass > 0, routed.weight.sum(axis=(1, 2)) / jnp.where(mass > 0, mass, 1.0), 1.0)
    served = {
        f"served_by_{least}": 100.0 * (experts_of >= least).mean(axis=1, dtype=jnp.float32) for least in SERVED_BY
    }
    return {
        "experts_per_token_mean": experts_of.mean(axis=1),
        "experts_per_token_min": experts_of.min(axis=1),
        "experts_per_token_max": experts_of.max(axis=1),
        **served,
        "support": routed.selected.mean(axis=1),
        "dropped_mass": 100.0 * (1.0 - kept),
        "smallest_gate": jnp.where(used, gates, jnp.inf).min(axis=(1, 2)),
        "entropy": jax.scipy.special.entr(routed.gates).sum(axis=2).mean(axis=1),
    }
