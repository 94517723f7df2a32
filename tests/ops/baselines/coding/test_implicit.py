"""Derivatives of what is sparse, against the normal equations of the atoms in use."""

import jax
import numpy as np
import pytest

from ops.baselines.coding import _differentiable
from tests.ops import oracles


@pytest.mark.parametrize("sum_is_fixed", [False, True])
def test_atoms_that_a_row_does_not_use_do_not_matter_to_it_however_large(sum_is_fixed):
    dictionary = oracles.samples((6, 5), dtype=np.float32)
    dictionary[:, 3:] *= 1e4
    x, moved = oracles.samples((2, 6), 1, np.float32), oracles.samples((2, 6), 2, np.float32)
    solution = np.float32([[0.2, 0.3, 0.5, 0, 0], [0, 0, 0, 0.4, 0.6]])

    @jax.jit
    def along(moved):
        function = lambda x: _differentiable(solution, x, dictionary, np.zeros_like(solution), sum_is_fixed)  # noqa: E731
        return jax.jvp(function, (x,), (moved,))[1]

    found = np.asarray(along(moved))
    for row, used, rest in ((0, slice(0, 3), slice(3, 5)), (1, slice(3, 5), slice(0, 3))):
        atoms = np.float64(dictionary[:, used])
        size = atoms.shape[1]
        ways = np.linalg.svd(np.ones((1, size)))[2][1:].T if sum_is_fixed else np.eye(size)  # in which y may move
        expected = ways @ np.linalg.lstsq(atoms @ ways, moved[row], rcond=None)[0]
        np.testing.assert_allclose(found[row, used], expected, rtol=1e-4)
        assert not found[row, rest].any()
