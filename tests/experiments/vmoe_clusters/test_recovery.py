"""The share of the best assignment that is found, by SciPy's matching."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from experiments.vmoe_clusters import task
from experiments.vmoe_clusters.recovery import common, recovery


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
    # Experts that hold whole clusters, by other names, find everything.
    pairs = clusters[0]
    members = np.stack([np.flatnonzero((pairs == name).any(axis=1)) for name in rng.permutation(experts)])
    assert recovery(jnp.asarray(members[None]), jnp.asarray(pairs[None]), experts) == 1
