"""The mask of a sorting network against the product of the matrices of its layers."""

import jax
import numpy as np
import pytest
from scipy import special

import ops
from scripts.relaxations.networks import network_topk_mask
from tests.ops import oracles


def by_matrices(x, k, lam):
    """The sum of the first k rows of the product, a layer at a time, for 2^m entries."""
    n, s, product, block = x.size, x, np.eye(x.size), 2
    while block <= n:
        apart = block // 2
        while apart:
            layer = np.eye(n)
            for i in (i for i in range(n) if not i & apart):
                j, sign = i + apart, -1 if i & block else 1
                share = special.expit(sign * (s[i] - s[j]) / lam)
                layer[np.ix_([i, j], [i, j])] = [[share, 1 - share], [1 - share, share]]
            s, product, apart = layer @ s, layer @ product, apart // 2
        block *= 2
    return product[:k].sum(0)


@pytest.fixture(scope="module")
def network():
    return jax.jit(network_topk_mask, static_argnums=1)


def test_agrees_with_its_matrices(network):
    x = oracles.samples((2, 16))
    expected = [by_matrices(row, 5, 0.3) for row in x]
    np.testing.assert_allclose(network(np.float32(x), 5, lam=np.float32(0.3)), expected, atol=1e-6)


def test_entries_that_fill_up_a_row_get_nothing(network):
    x = oracles.samples((3, 21), dtype=np.float32)
    for lam in (1e-6, 0.1, 10.0):
        np.testing.assert_allclose(network(x, 6, lam=np.float32(lam)).sum(axis=-1), 6, rtol=1e-5)
    np.testing.assert_array_equal(network(x, 6, lam=np.float32(1e-6)), ops.hard_topk_mask(x, 6))
