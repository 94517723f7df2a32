"""Groups of tokens: who lies where, what the best assignment explains, and how much of it is found."""

import jax
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from experiments.vmoe_clusters import task


@pytest.mark.parametrize(("num_clusters", "k"), [(5, 2), (32, 31)])
def test_pairs_are_distinct_and_balanced(num_clusters, k):
    pairs = task.pairs(num_clusters, k)
    assert pairs.shape == (num_clusters * k // 2, 2)
    np.testing.assert_array_equal(np.bincount(pairs.ravel(), minlength=num_clusters), np.full(num_clusters, k))
    assert len({frozenset(pair) for pair in pairs.tolist()}) == len(pairs)
    assert (pairs[:, 0] != pairs[:, 1]).all()


def test_targets_combine_two_cluster_maps():
    noise, k = 0.5, 7
    problem = jax.device_get(jax.jit(task.draw, static_argnums=(1, 2, 3))(jax.random.key(0), 8, 10, 300))
    np.testing.assert_allclose(problem["centres"] @ problem["centres"].T, np.eye(8), atol=1e-5)
    sample = jax.jit(lambda problem, numbers: task.sample(problem, numbers, noise, k))
    groups = jax.device_get(sample(problem, np.arange(30, dtype=np.int32)))
    assert groups.tokens.shape == (30, 28, 10)
    assert groups.targets.shape == (30, 28, 300)
    for values in groups[:2]:
        assert np.square(values).mean() == pytest.approx(1, rel=0.05)
    maps, clusters = np.asarray(problem["maps"]), np.asarray(groups.clusters)
    for group, token in ((0, 0), (3, 9), (29, 27)):
        a, b = clusters[group, token]
        expected = groups.tokens[group, token] @ (maps[a] + maps[b]) / np.sqrt(2)
        np.testing.assert_allclose(groups.targets[group, token], expected, rtol=1e-4, atol=1e-5)
    assert (clusters[0] != clusters[1]).any()  # names are dealt out anew
    scale = np.sqrt(10 / (2 + 10 * noise**2))
    rest = groups.tokens / scale - np.asarray(problem["centres"])[clusters].sum(axis=2)
    assert rest.std() == pytest.approx(noise, rel=0.05)
    for group in clusters:
        np.testing.assert_array_equal(np.bincount(group.ravel()), np.full(8, k))


def test_recovery_matches_scipy_assignment():
    experts, k, groups = 6, 4, 5
    rng = np.random.default_rng(0)
    clusters = np.stack([rng.permutation(experts)[task.pairs(experts, k)] for _ in range(groups)])
    token = np.stack([[rng.permutation(12)[:k] for _ in range(experts)] for _ in range(groups)])
    counts = np.zeros((experts, experts))
    for group in range(groups):
        for expert in range(experts):
            for pair in clusters[group, token[group, expert]]:
                counts[expert, pair] += 1
    np.testing.assert_array_equal(jax.jit(task.common, static_argnums=2)(token, clusters, experts), counts)
    matched = linear_sum_assignment(counts, maximize=True)
    expected = counts[matched].sum() / (groups * 12 * 2)
    recovery = jax.jit(task.recovery, static_argnums=2)
    found = recovery(token, clusters, experts)
    assert found == pytest.approx(expected)
    assert found < 1
    # Experts that hold whole clusters, by other names, find everything.
    pairs = clusters[0]
    members = np.stack([np.flatnonzero((pairs == name).any(axis=1)) for name in rng.permutation(experts)])
    assert recovery(np.stack(groups * [members]), np.stack(groups * [pairs]), experts) == 1
