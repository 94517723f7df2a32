"""Share of the best assignment that a routing has found, up to a permutation of the experts."""

import jax
import jax.numpy as jnp
import optax
from jax import Array

from experiments.vmoe_clusters.task import membership


def recovery(token: Array, clusters: Array, num_experts: int) -> Array:
    """The share of the pairs of token and cluster that the expert of the cluster takes.

    Experts and clusters are matched so that this share is largest over all groups (the Hungarian algorithm). It can be
    1 if experts take as many tokens as a cluster has, and is less otherwise.

    Args:
      token: [G, E, k] int32, the tokens that an expert takes, all different.
      clusters: [G, S, 2] int32, those of each token.
      num_experts: E, of experts and of clusters.

    Returns:
      A float32 in [0, 1].
    """
    counts = common(token, clusters, num_experts)
    # `optax` computes the cost of what it has matched in types that strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        expert, cluster = optax.assignment.hungarian_algorithm(-counts)
    return counts[expert, cluster].sum() / clusters.size


def common(token: Array, clusters: Array, num_experts: int) -> Array:
    """Tokens that an expert takes of a cluster, in all groups: [E, E] float32, of experts and clusters."""
    of_group = jax.vmap(lambda member, taken: member[:, taken].sum(axis=-1).T)
    return of_group(membership(clusters, num_experts), token).sum(axis=0, dtype=jnp.float32)
