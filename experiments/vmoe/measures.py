"""Metrics of routing: of each group, over all images, and between two evaluations."""

import jax
import jax.numpy as jnp
from jax import Array

from experiments.vmoe.routers import Slots

SERVED_BY = (1, 2, 4)  # experts at least


def assigned(routed: Slots) -> Array:
    """Returns bool [G, S, E]: which experts have a token in their buffer with a weight above 0."""
    num_tokens, num_experts = routed.gates.shape[1:]

    def of_group(token: Array, used: Array) -> Array:
        expert = jnp.arange(num_experts, dtype=token.dtype)[:, None]
        return jnp.zeros((num_tokens, num_experts), bool).at[token, expert].max(used)

    return jax.vmap(of_group)(routed.token, routed.weight > 0)


def measure(routed: Slots) -> dict[str, Array]:
    """Returns metrics of the routing of each group, float32 [G]; only weights above 0 count.

    experts_per_token_{mean,min,max}   the buffers that hold a token, over the tokens of the group
    served_by_T                        the share of tokens in the buffers of at least T experts, in percent
    support                            the tokens selected by an expert, in its buffer or not; mean over the experts
    load_variation                     the coefficient of variation of these numbers over the experts; 0: all equal
    dropped_mass                       the share of the weights that found no room, in percent
    smallest_gate                      the smallest gate of a token in a buffer
    entropy                            the entropy of the gates of a token, in nats; mean over the tokens
    """
    routed = jax.lax.stop_gradient(routed)
    experts_of = assigned(routed).sum(axis=2, dtype=jnp.float32)  # [G, S]
    support = routed.selected.mean(axis=1)
    gates = jnp.take_along_axis(routed.gates.swapaxes(1, 2), routed.token, axis=-1)
    mass = routed.mass.sum(axis=1)
    # A group whose weights are all 0 has dropped nothing.
    kept = jnp.where(mass > 0, routed.weight.sum(axis=(1, 2)) / jnp.where(mass > 0, mass, 1.0), 1.0)
    served = {
        f"served_by_{least}": 100.0 * (experts_of >= least).mean(axis=1, dtype=jnp.float32) for least in SERVED_BY
    }
    return {
        "experts_per_token_mean": experts_of.mean(axis=1),
        "experts_per_token_min": experts_of.min(axis=1),
        "experts_per_token_max": experts_of.max(axis=1),
        **served,
        "support": support,
        "load_variation": routed.selected.std(axis=1) / jnp.where(support > 0, support, 1.0),
        "dropped_mass": 100.0 * (1.0 - kept),
        "smallest_gate": jnp.where(routed.weight > 0, gates, jnp.inf).min(axis=(1, 2)),
        "entropy": jax.scipy.special.entr(routed.gates).sum(axis=2).mean(axis=1),
    }


def mutual_information(joint: Array) -> Array:
    """Returns the mutual information of two variables, in nats, given their joint frequencies [E, n] in any unit.

    It is 0 for independent variables and for an empty table, and at most log(min(E, n)).
    """
    total = joint.sum()
    share = joint / jnp.where(total > 0, total, 1.0)
    entropies = [jax.scipy.special.entr(values).sum() for values in (share.sum(axis=0), share.sum(axis=1), share)]
    return jnp.maximum(entropies[0] + entropies[1] - entropies[2], 0.0)


def stability(before: Array, now: Array) -> Array:
    """Returns the overlap of two routings in percent: pairs of token and expert in both, over pairs in either.

    It is Jaccard's index of the sets of pairs, given as bool [S, E]; 100 if both are empty.
    """
    either = (before | now).sum(dtype=jnp.float32)
    both = (before & now).sum(dtype=jnp.float32)
    return 100.0 * jnp.where(either > 0, both / jnp.where(either > 0, either, 1.0), 1.0)
