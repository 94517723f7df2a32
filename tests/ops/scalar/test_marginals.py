"""Conjugate gradients on batches, against numpy's least squares."""

import jax.numpy as jnp
import numpy as np
import pytest

from ops.scalar.marginals import conjugate_gradients

pytestmark = pytest.mark.usefixtures("x64")

RNG = np.random.default_rng(0)
BASES = np.linalg.qr(RNG.normal(size=(4, 6, 6)))[0]
RANKS = np.arange(6) < np.array([[6], [3], [1], [6]])
# One positive semidefinite matrix for each rank, its curvatures between 1/2 and 2; the last right side is 0.
MATRICES = (BASES * (RANKS * RNG.uniform(0.5, 2, (4, 6)))[:, None]) @ np.swapaxes(BASES, 1, 2)
RIGHT = np.einsum("bij,bj->bi", MATRICES, RNG.normal(size=(4, 6)) * [[1], [1e6], [1e-6], [0]])


@pytest.mark.parametrize("trailing", [(), (1,)], ids=["vectors", "columns"])
def test_each_of_a_batch_is_solved_as_by_least_squares(trailing):
    wanted = np.stack([np.linalg.lstsq(m, r, rcond=1e-10)[0] for m, r in zip(MATRICES, RIGHT, strict=True)])
    found = conjugate_gradients(
        lambda y: jnp.einsum("bij,bj...->bi...", MATRICES, y), jnp.reshape(RIGHT, (4, 6, *trailing)), 12, 1e-14
    )
    for one, solution in zip(found.reshape(4, 6), wanted, strict=True):
        np.testing.assert_allclose(one, solution, rtol=0, atol=1e-10 * np.abs(solution).max())


def test_ends_where_the_curvature_is_negligible():
    matrix, right = jnp.asarray([[1.0, 1e-9]]), jnp.asarray([[0.0, 1.0]])
    np.testing.assert_allclose(conjugate_gradients(lambda y: matrix * y, right, 5, 1e-14), [[0, 1e9]])
    np.testing.assert_array_equal(
        conjugate_gradients(lambda y: matrix * y, right, 5, 1e-14, min_curvature=1e-8), [[0, 0]]
    )


def test_makes_no_more_iterations_than_it_may():
    matrix, right = MATRICES[0], RIGHT[:1]
    length = np.sum(right * right) / (right[0] @ matrix @ right[0])  # of the first step of steepest descent
    found = conjugate_gradients(lambda y: y @ matrix, jnp.asarray(right), 1, 1e-14)
    np.testing.assert_allclose(found, length * right, rtol=1e-12)


def test_what_rounding_leaves_in_the_null_space_does_not_grow():
    matrix, null = np.array([[[1.0, -1.0], [-1.0, np.nextafter(1, 2)]]]), np.array([0.7, 0.7])
    right = jnp.asarray([[1.0, -1.0] + 4e-15 * null])
    found = conjugate_gradients(lambda y: jnp.einsum("bij,bj->bi", matrix, y), right, 24, 2e-15, min_curvature=1e-15)
    np.testing.assert_allclose(found, [[0.5, -0.5]], rtol=1e-10)
