"""The root finder on functions chosen to be unpleasant, with local models that lie."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops.scalar import rootfinding
from ops.scalar.rootfinding import End, Evaluation, find_root, most_evaluations

ROOTS = np.float32([0.0, 1.0, -3.5e7, 1e-20, 2.5e30, -1e-3])
LIMITS = jnp.finfo(jnp.float32)
SHAPES = {
    "step": lambda hi, lo: jnp.where((ROOTS - hi) - lo > 0, 1.0, -1.0),
    "linear": lambda hi, lo: jnp.clip((ROOTS - hi) - lo, -1e30, 1e30),
    "cubic": lambda hi, lo: jnp.clip((ROOTS - hi) - lo, -1e10, 1e10) ** 3,
    # Tiny on one side and large on the other: Newton's method and false position take turns on it.
    "lopsided": lambda hi, lo: jnp.where((ROOTS - hi) - lo > 0, 1e-4, -1.0),
}


def solve(function, start, step=None, **options):
    def evaluate(gamma):
        value = function(gamma.hi, gamma.lo)
        return Evaluation(
            excess=value,
            level=value,
            step=jnp.zeros_like(value) if step is None else step(gamma.hi + gamma.lo),
            trusted=jnp.full(value.shape, step is not None),
            converged=value == 0,
            scale=jnp.abs(gamma.hi + gamma.lo) + LIMITS.tiny / LIMITS.eps,
        )

    ends = End(float(LIMITS.min), jnp.inf), End(float(LIMITS.max), -jnp.inf)
    return find_root(evaluate, start, *ends, **options)


def check(root, roots=ROOTS):
    np.testing.assert_allclose(root.right, roots, rtol=1e-5, atol=1e-10)
    assert np.all(root.evaluations <= most_evaluations(jnp.float32))


def test_finds_the_root_from_anywhere():
    solved = jax.jit(lambda start: [solve(shape, start) for shape in SHAPES.values()])
    for start in (0.0, 1e10, -1e10, np.nan, np.inf):
        for root in solved(jnp.full(6, start, jnp.float32)):
            check(root)


def test_evaluations_ahead_change_nothing():
    both = jax.jit(lambda start: [solve(SHAPES["cubic"], start, ahead=ahead) for ahead in (0, 3)])
    jax.tree.map(np.testing.assert_array_equal, *both(jnp.asarray([*ROOTS[:3], 0, np.nan, 2], jnp.float32)))


SIZES = np.float32(10.0) ** np.arange(-30, 31, 5, dtype=np.float32)
LIES = {
    "away": lambda gamma, root, size: size + 0 * gamma,
    "back and forth": lambda gamma, root, size: jnp.where(gamma > root, -size, size),
    "hardly": lambda gamma, root, size: gamma * LIMITS.eps * jnp.sign(root - gamma),
    "to the root, almost": lambda gamma, root, size: (root - gamma) * (1 - 1e-3),
}


@pytest.mark.parametrize(("shape", "lie"), list(zip(2 * ["step", "lopsided"], LIES, strict=True)))
def test_no_lying_model_breaks_the_bound(shape, lie):
    roots, sizes = np.tile(ROOTS, len(SIZES)), np.repeat(SIZES, len(ROOTS))
    right = {"step": 1.0, "lopsided": 1e-4}[shape]

    @jax.jit
    def solved(start):
        def step(gamma):
            return LIES[lie](gamma, roots, sizes)

        return solve(lambda hi, lo: jnp.where((roots - hi) - lo > 0, right, -1.0), start, step)

    check(solved(np.zeros(roots.shape, np.float32)), roots)


def test_finds_root_between_adjacent_floats():
    """A root a hundredth of the way from 1 to the next float."""
    apart = float(LIMITS.eps) / 100

    def evaluate(gamma):
        value = (apart - (gamma.hi - 1)) - gamma.lo
        nothing = jnp.zeros_like(value)
        scale = jnp.full_like(value, 10 * apart)
        return Evaluation(value, value, nothing, nothing > 0, value == 0, scale)

    ends = End(float(LIMITS.min), jnp.inf), End(float(LIMITS.max), -jnp.inf)
    point = jax.jit(lambda start: find_root(evaluate, start, *ends).point)(np.zeros(1, np.float32))
    assert float(point.hi[0]) == 1
    np.testing.assert_allclose(point.lo, apart, rtol=1e-5)


def test_a_row_that_is_not_done_is_nan(monkeypatch):
    monkeypatch.setattr(rootfinding, "most_evaluations", lambda dtype: 5)
    root = jax.jit(lambda start: solve(SHAPES["step"], start))(np.zeros(6, np.float32))
    assert np.isnan(root.point.hi).all()
