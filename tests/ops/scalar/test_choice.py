"""Choices are those of ``jnp.where``, in fewer equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops.scalar.choice import choose
from tests.ops import oracles

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)
COLUMN = np.float32([[10], [20]])


@pytest.mark.parametrize(
    ("a", "b"), [(ROWS, COLUMN), (COLUMN, ROWS), (ROWS, 0.0), (-np.inf, ROWS), (COLUMN, 1.0), (ROWS, np.float32(7))]
)
@pytest.mark.parametrize("condition", [ROWS > 2, COLUMN > 10, np.bool_(True)], ids=["entries", "rows", "one"])
def test_chooses_as_where_does(condition, a, b):
    found = jax.jit(choose)(condition, a, b) if np.ndim(a) and np.ndim(b) else choose(condition, a, b)
    expected = np.where(condition, a, b)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def test_two_numbers_have_the_dtype_that_is_asked_for():
    found = choose(ROWS > 2, 1.0, -1.0, np.float16)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, np.where(ROWS > 2, 1, -1))


def test_a_number_takes_two_equations_and_an_array_one():
    def equations(function):
        return sum(1 for _ in oracles.equations(jax.make_jaxpr(function)(ROWS)))

    assert equations(lambda x: choose(ROWS > 2, x, 0.0)) == 2
    assert equations(lambda x: choose(ROWS > 2, x, x)) == 1
    assert equations(lambda x: jnp.where(ROWS > 2, x, 0.0)) > 2  # else there is no need for this module
