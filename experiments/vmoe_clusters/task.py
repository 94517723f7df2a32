"""Groups of tokens in overlapping clusters, and their targets.

`G` groups, `S` tokens of a group, `E` clusters and as many experts, `D` the width of a token, `F` that of a target.

Every token lies in two clusters, and every cluster has k = 2 S / E tokens of a group: the tokens are the edges of a
regular graph of clusters, whose names are permuted in each group. With orthonormal centres `u` and maps `A` of the
clusters a and b,

    x = scale (u_a + u_b + noise e),     y = (A_a x + A_b x) / sqrt(2),     e normal,

where the scale gives each entry of x the variance 1, and so each entry of y. So the best assignment is known: a token
goes to the experts of its two clusters, which have learned sqrt(2) A, with a weight of one half each. It explains the
targets completely, and gives every expert exactly k tokens and every token exactly 2 experts. With more noise more
tokens look like tokens of other clusters.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

PER_TOKEN = 2  # clusters of a token

Problem = dict[str, Array]  # `centres` [E, D] and `maps` [E, D, F]


class Groups(NamedTuple):
    """Tokens [G, S, D], their targets [G, S, F], and the two clusters of each, [G, S, 2] int32."""

    tokens: Array
    targets: Array
    clusters: Array


def pairs(num_clusters: int, k: int) -> np.ndarray:
    """Returns the clusters of each token, [S, 2] int32: each cluster with its `k` nearest on a circle, each pair once.

    Args:
      num_clusters: E.
      k: tokens of a cluster, below E; `num_clusters * k` is even.
    """
    clusters = np.arange(num_clusters)
    steps = [np.stack([clusters, (clusters + step) % num_clusters], axis=1) for step in range(1, k // 2 + 1)]
    if k % 2:
        half = num_clusters // 2
        steps.append(np.stack([clusters[:half], clusters[:half] + half], axis=1))
    return np.concatenate(steps).astype(np.int32)


def draw(key: Array, num_clusters: int, width: int, outputs: int) -> Problem:
    """Draws centres and maps at random; `width` is at least `num_clusters`."""
    centres_key, maps_key = jax.random.split(key)
    maps = jax.random.normal(maps_key, (num_clusters, width, outputs)) * np.float32(width**-0.5)
    return {"centres": jax.random.orthogonal(centres_key, width)[:num_clusters], "maps": maps}


def sample(problem: Problem, numbers: Array, noise: float, k: int) -> Groups:
    """Returns the groups with these numbers, [G] int32, with `k` tokens of each cluster.

    Groups with the same number have the same noise in all problems. Each problem has its own directions, so relative to
    its centres the noise is independent.
    """
    num_clusters, width = problem["centres"].shape
    token_pairs = pairs(num_clusters, k)

    def group(number: Array) -> Groups:
        names_key, noise_key = jax.random.split(jax.random.fold_in(jax.random.key(0), number))
        clusters = jax.random.permutation(names_key, num_clusters).astype(jnp.int32)[token_pairs]
        noise_vectors = np.float32(noise) * jax.random.normal(noise_key, (len(token_pairs), width))
        scale = np.float32((width / (PER_TOKEN + noise**2 * width)) ** 0.5)
        tokens = scale * (problem["centres"][clusters].sum(axis=1) + noise_vectors)
        mapped = jnp.einsum("sd,edf->sef", tokens, problem["maps"])
        by_own_maps = jnp.take_along_axis(mapped, clusters[..., None], axis=1)
        return Groups(tokens, by_own_maps.sum(axis=1) * np.float32(PER_TOKEN**-0.5), clusters)

    return jax.vmap(group)(numbers)


def membership(clusters: Array, num_clusters: int) -> Array:
    """Returns float32 [G, E, S]: 1 if the token lies in the cluster, else 0."""
    return jax.nn.one_hot(clusters, num_clusters, axis=1).sum(axis=-1)


def recovery(token: Array, clusters: Array, num_experts: int) -> Array:
    """Returns the share of the pairs of token and cluster that the expert of the cluster takes.

    Experts and clusters are matched such that this share is largest over all groups (the Hungarian algorithm). It can
    be 1 only if experts take as many tokens as a cluster has.

    Args:
      token: [G, E, k] int32, the tokens that an expert takes, all different.
      clusters: [G, S, 2] int32, the clusters of each token.
      num_experts: E, the number of experts and of clusters.

    Returns:
      A float32 in [0, 1].
    """
    counts = common(token, clusters, num_experts)
    # `optax` uses types that strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        expert, cluster = optax.assignment.hungarian_algorithm(-counts)
    return counts[expert, cluster].sum() / clusters.size


def common(token: Array, clusters: Array, num_experts: int) -> Array:
    """Returns float32 [E, E]: the tokens that each expert takes from each cluster, in all groups."""
    of_group = jax.vmap(lambda member, taken: member[:, taken].sum(axis=-1).T)
    return of_group(membership(clusters, num_experts), token).sum(axis=0, dtype=jnp.float32)
