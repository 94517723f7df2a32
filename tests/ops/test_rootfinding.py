"""The root finder on functions chosen to be unpleasant, without a local model to lean on."""

import jax.numpy as jnp
import numpy as np
import pytest

from ops.rootfinding import MAX_EVALUATIONS, Evaluation, find_root

ROOTS = np.float32([0.0, 1.0, -3.5e7, 1e-20, 2.5e30, -1e-3])


def solve(function, start, density, step=None):
    limits = jnp.finfo(jnp.float32)
    calls = []

    def evaluate(gamma):
        calls.append(1)
        value = function(gamma.hi, gamma.lo)
        return Evaluation(
            excess=value,
            step=jnp.zeros_like(value) if step is None else step(gamma.hi),
            trusted=jnp.full(value.shape, step is not None),
            converged=value == 0,
            resolution=4 * limits.eps * jnp.abs(gamma.hi) + limits.tiny,
        )

    return find_root(evaluate, start, density, limits.min, limits.max)


@pytest.mark.parametrize("start", [0.0, 1e10, -1e10, np.nan, np.inf])
@pytest.mark.parametrize("shape", ["step", "linear", "cubic"])
def test_finds_the_root_from_anywhere(start, shape):
    function = {
        "step": lambda hi, lo: jnp.where(hi < ROOTS, 1.0, -1.0),
        "linear": lambda hi, lo: jnp.clip((ROOTS - hi) - lo, -1e30, 1e30),
        "cubic": lambda hi, lo: jnp.clip((ROOTS - hi) - lo, -1e10, 1e10) ** 3,
    }[shape]
    root = solve(function, jnp.full(6, start, jnp.float32), jnp.ones(6))
    np.testing.assert_allclose(root.right.hi, ROOTS, rtol=1e-5, atol=1e-10)


def test_a_lying_model_does_not_matter():
    def away(gamma):
        return jnp.full(gamma.shape, 1e-3, jnp.float32)

    root = solve(lambda hi, lo: jnp.where(hi < ROOTS, 1.0, -1.0), jnp.zeros(6), jnp.full(6, 1e20), away)
    np.testing.assert_allclose(root.right.hi, ROOTS, rtol=1e-5, atol=1e-10)


def test_nan_stays_in_its_row():
    root = solve(lambda hi, lo: jnp.where(jnp.arange(6) == 2, jnp.nan, ROOTS - hi), jnp.zeros(6), jnp.ones(6))
    assert np.isnan(root.point.hi).tolist() == [i == 2 for i in range(6)]


def test_the_count_of_evaluations_is_bounded():
    assert MAX_EVALUATIONS[4] >= 4 * (32 + 24)
    assert MAX_EVALUATIONS[8] >= 4 * (64 + 53)
