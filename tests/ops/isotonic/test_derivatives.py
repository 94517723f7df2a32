"""Derivatives of the isotonic solution: Proposition 7 as the paper writes it, and where entries have no weight."""

import jax
import numpy as np
import pytest

from ops.isotonic import isotonic_regression

pytestmark = pytest.mark.usefixtures("x64")

RNG = np.random.default_rng(3)
S = np.sort(RNG.normal(size=11))[::-1] + 3.0  # positive: fit for magnitudes as well
W = np.sort(RNG.uniform(0, 2, 11))[::-1].copy()


def proposition_7(v, s, w, p):
    """The Jacobian in ``s``, for lam = 1 and ``half_square``."""
    q = p / (p - 1)
    jacobian = np.zeros((s.size, s.size))
    for i in range(s.size):
        block = np.flatnonzero(v == v[i])
        share = np.abs(v[i] - s[block]) ** (q - 2)
        jacobian[i, block] = (q - 1) * share / np.sum((q - 1) * share + w[block])
    return jacobian


def test_jacobian_is_that_of_proposition_7():
    p = 4 / 3

    def solution(s):
        return isotonic_regression(s, W, lam=1.0, p=p, phi="half_square")

    v, jacobian = jax.jit(lambda s: (solution(s), jax.jacrev(solution)(s)))(S)
    assert 1 < np.unique(v).size < v.size
    np.testing.assert_allclose(jacobian, proposition_7(np.asarray(v), S, W, p), atol=1e-9)


def test_finite_where_entries_have_no_weight():
    def loss(s, w, lam):
        return (isotonic_regression(s, w, lam=lam, p=4 / 3) ** 2).sum()

    gradients = jax.jit(jax.grad(loss, (0, 1, 2)))(np.repeat(S, 2), np.r_[np.ones(4), np.zeros(18)], 0.5)
    assert all(np.isfinite(g).all() for g in gradients)
    np.testing.assert_allclose(gradients[0][-3:], 2 * np.repeat(S, 2)[-3:])  # v = s there
