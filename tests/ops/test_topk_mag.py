"""The relaxed magnitude operator: the error bound of the paper, and what is kept exactly."""

import jax
import numpy as np
import pytest

from ops import hard_topk_mag, topk_mag
from tests.ops import oracles

X = oracles.samples((20, 40))


def test_debiased_keeps_fully_selected_entries_exactly():
    p = 4 / 3
    x = X.astype(np.float32)
    y = np.asarray(topk_mag(x, 7, lam=0.01, p=p, debias=True))
    kept = np.abs(x) > np.sort(np.abs(x), -1)[:, -3:-2]  # the first two: 7 are asked for
    assert kept.sum() == 2 * len(x)
    np.testing.assert_array_equal(y[kept], x[kept])
    assert np.all((y == 0).sum(-1) >= 25)


def test_error_bound_of_section_5(x64):
    lam = 1e-4
    error = np.abs(topk_mag(X, 7, lam=lam) - hard_topk_mag(X, 7)).max(-1)
    assert np.all(error > 0)
    assert np.all(error <= lam * np.abs(X).max(-1) * (1 + 1e-12))


def test_derivative_in_lam_where_lam_is_0(x64):
    p = 4 / 3
    x = np.array([1.0, -3.0, 2.0, 0.5])

    @jax.jit
    def jacobians(x, lam):
        def operator(x, lam):
            return topk_mag(x, 2, lam=lam, p=p)

        in_x, in_lam = jax.jacfwd(operator, (0, 1))(x, lam)
        return in_x, in_lam, jax.jacrev(operator, 1)(x, lam)

    in_x, in_lam, backwards = jacobians(x, 0.0)
    np.testing.assert_allclose(in_x, np.diag([0, 1, 1, 0]), rtol=1e-12)
    for found in (in_lam, backwards):  # y + lam y^(p - 1) = x
        np.testing.assert_allclose(found, [0, 3 ** (p - 1), -(2 ** (p - 1)), 0], rtol=1e-12)


@pytest.mark.parametrize("largest", [1e3, 1e13])
def test_a_value_is_accurate_relative_to_itself_far_below_the_largest(largest):
    x = np.float32([4.8940888e-27, 2.4708283e-29, 7.5706177e3, -largest])
    y = topk_mag(x, np.float32(2.0532987), lam=np.float32(1e-12))
    np.testing.assert_allclose(y, [0.0532987 * x[0], 0, x[2], x[3]], rtol=1e-5)
