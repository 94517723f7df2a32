"""Conjugate gradients on batches, against numpy's least squares."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops.scalar.marginals import conjugate_gradients

pytestmark = pytest.mark.usefixtures("x64")


def _matrices(rng: np.random.Generator, ranks: tuple[int, ...], n: int = 6) -> np.ndarray:
    """One positive semidefinite matrix for each rank, its curvatures between 1/2 and 2."""
    found = []
    for rank in ranks:
        basis, _ = np.linalg.qr(rng.normal(size=(n, n)))
        found.append((basis * np.where(np.arange(n) < rank, rng.uniform(0.5, 2, n), 0)) @ basis.T)
    return np.stack(found)


@pytest.mark.parametrize("trailing", [(), (1,)], ids=["vectors", "columns"])
def test_each_of_a_batch_is_solved_as_by_least_squares(trailing):
    rng = np.random.default_rng(0)
    matrices = _matrices(rng, (6, 3, 1))
    right = np.einsum("bij,bj->bi", matrices, rng.normal(size=(3, 6)) * [[1], [1e6], [1e-6]])
    wanted = np.stack([np.linalg.lstsq(m, r, rcond=1e-10)[0] for m, r in zip(matrices, right, strict=True)])
    found = conjugate_gradients(
        lambda y: jnp.einsum("bij,bj...->bi...", matrices, y), jnp.reshape(right, (3, 6, *trailing)), 12, 1e-14
    )
    for one, solution in zip(found.reshape(3, 6), wanted, strict=True):
        np.testing.assert_allclose(one, solution, rtol=0, atol=1e-10 * np.abs(solution).max())


def test_a_system_that_is_done_stays_while_others_go_on():
    rng = np.random.default_rng(1)
    matrices = np.stack([np.eye(6), *_matrices(rng, (6,))])
    right = rng.normal(size=(2, 6)) * [[0], [1]]

    def solved(rows: slice) -> jax.Array:
        return conjugate_gradients(lambda y: jnp.einsum("bij,bj->bi", matrices[rows], y), right[rows], 12, 1e-14)

    found = solved(slice(None))
    np.testing.assert_array_equal(found[0], 0)
    np.testing.assert_allclose(found[1:], solved(slice(1, None)), rtol=1e-12)


def test_ends_where_the_curvature_is_negligible():
    matrix, right = jnp.asarray([[1.0, 1e-9]]), jnp.asarray([[0.0, 1.0]])
    np.testing.assert_allclose(conjugate_gradients(lambda y: matrix * y, right, 5, 1e-14), [[0, 1e9]])
    np.testing.assert_array_equal(
        conjugate_gradients(lambda y: matrix * y, right, 5, 1e-14, min_curvature=1e-8), [[0, 0]]
    )


def test_makes_no_more_iterations_than_it_may():
    rng = np.random.default_rng(2)
    matrices, right = _matrices(rng, (6,)), rng.normal(size=(1, 6))
    # The first step of steepest descent.
    length = np.sum(right * right) / np.einsum("bi,bij,bj->", right, matrices, right)
    found = conjugate_gradients(lambda y: jnp.einsum("bij,bj->bi", matrices, y), jnp.asarray(right), 1, 1e-14)
    np.testing.assert_allclose(found, length * right, rtol=1e-12)


def test_what_rounding_leaves_in_the_null_space_does_not_grow():
    matrix, null = np.array([[[1.0, -1.0], [-1.0, np.nextafter(1, 2)]]]), np.array([0.7, 0.7])
    right = jnp.asarray([[1.0, -1.0] + 4e-15 * null])
    found = conjugate_gradients(lambda y: jnp.einsum("bij,bj->bi", matrix, y), right, 24, 2e-15, min_curvature=1e-15)
    np.testing.assert_allclose(found, [[0.5, -0.5]], rtol=1e-10)
