"""Hard forwards, relaxed backwards."""

import jax
import numpy as np

from ops import straight_through


def test_the_value_is_hard_and_derivatives_are_relaxed():
    hard, soft = np.float32([1, 0]), np.float32([0.25, 0.75])
    value, tangent = jax.jvp(straight_through, (hard, soft), (np.float32([7, 7]), np.float32([2, 3])))
    assert (value.tolist(), tangent.tolist()) == ([1, 0], [2, 3])
    # Second ones too: 6 of the cube of what is 1 and moves as `soft` does.
    assert jax.grad(jax.grad(lambda soft: straight_through(1.0, soft) ** 3))(0.25) == 6
