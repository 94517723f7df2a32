"""The share of the best assignment that is found: by hand, and by SciPy's matching."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from experiments.vmoe_clusters import task
from experiments.vmoe_clusters.recovery import common, recovery

# Six tokens, four clusters of three: the pairs 01, 12, 23, 30, 02, 13.
CLUSTERS = task.pairs(4, 3)[None]


def test_by_hand():
    np.testing.assert_array_equal(CLUSTERS[0], [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2], [1, 3]])
    members = np.array([[0, 3, 4], [0, 1, 5], [1, 2, 4], [2, 3, 5]])  # of each cluster
    names = np.array([2, 0, 3, 1])  # experts go by other names
    assert recovery(members[None, names], CLUSTERS, 4) == 1
    # Two experts have exchanged their tokens 3 and 1: of cluster 0 there are 0, 1, 4, of cluster 1 there are 0, 3, 5.
    changed = np.array([[0, 1, 4], [0, 3, 5], [1, 2, 4], [2, 3, 5]])[None, names]
    counts = np.array([[2, 2, 2, 0], [2, 2, 0, 2], [1, 1, 3, 1], [1, 1, 1, 3]])[names]
    np.testing.assert_array_equal(common(changed, CLUSTERS, 4), counts)
    assert recovery(changed, CLUSTERS, 4) == pytest.approx(10 / 12)
    # Three experts of one cluster can serve it once: two of them are taken for others.
    alike = members[[0, 0, 0, 3]][None]
    # Cluster 0 whole, 3 whole, and of 1 and 2 one token each that lies in 0 as well.
    assert recovery(alike, CLUSTERS, 4) == pytest.approx((3 + 3 + 1 + 1) / 12)


def test_the_matching_is_that_of_scipy_over_all_groups():
    experts, k, groups = 6, 4, 5
    rng = np.random.default_rng(0)
    clusters = np.stack([rng.permutation(experts)[task.pairs(experts, k)] for _ in range(groups)])
    token = np.stack([[rng.permutation(12)[:k] for _ in range(experts)] for _ in range(groups)])
    counts = np.zeros((experts, experts))
    for group in range(groups):
        for expert in range(experts):
            for pair in clusters[group, token[group, expert]]:
                counts[expert, pair] += 1
    np.testing.assert_array_equal(common(token, clusters, experts), counts)
    matched = linear_sum_assignment(counts, maximize=True)
    expected = counts[matched].sum() / (groups * 12 * 2)
    found = jax.jit(recovery, static_argnums=2)(jnp.asarray(token), jnp.asarray(clusters), experts)
    assert found == pytest.approx(expected)
    assert found < 1
