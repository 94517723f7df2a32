"""The solver of the scalar equation where it is hard: small p, wide and narrow relaxations, all or nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ops
from ops.nonlinearities import HALF_SQUARE
from ops.scalar import threshold
from ops.scalar.equation import Equation
from ops.scalar.magnitude import in_units
from ops.scalar.rootfinding import most_evaluations
from ops.scalar.threshold import evaluations
from tests.ops import oracles
from tests.ops.problems.entries import KINDS


def test_every_row_is_done_within_the_bound():
    rng = np.random.default_rng(1)
    x = np.concatenate([draw(rng, (40, 32)) for draw in KINDS]).astype(np.float32)
    k = rng.uniform(0, 32, size=(len(x), 1)).astype(np.float32)
    k = np.where(rng.random(k.shape) < 0.5, np.round(k), k)
    lam = (10 ** rng.uniform(-12, 12, size=k.shape)).astype(np.float32)

    @jax.jit
    def count(x, k, lam):
        equation = Equation(1.1, HALF_SQUARE)
        (x,), lam, _ = in_units((x,), lam, equation)
        return evaluations((equation.keys(x, lam),), k, lam, equation)

    found = np.asarray(count(x, k, lam))
    assert found.max() < most_evaluations(jnp.float32)
    assert found.mean() < 20


X = np.float32([1.0, 2.0, 3.0, 0.5, -2.5])


def test_lam_out_of_range_is_refused_or_nan():
    def operator(lam):
        return ops.topk_mag_tree({"a": X}, density=0.4, lam=lam)["a"]

    traced = jax.jit(operator)
    for lam in (9.5e37, np.inf, 1e-33, -1.0, np.nan):
        with pytest.raises(ValueError, match="lam must be 0 or in"):
            operator(lam)
        assert np.all(np.isnan(traced(lam)))


def primitives(function, *arguments):
    return [equation.primitive.name for equation in oracles.equations(jax.make_jaxpr(function)(*arguments))]


def test_tie_search_stays_a_cond_under_vmap():
    """It is there once, and done where a lam is 0 alone: a batch of rows would do it always if it became a select."""

    @jax.jit
    def batch(x, lam):
        return jax.vmap(lambda x, lam: ops.topk_mag(x, 2, lam=lam))(x, lam)

    x, lam = np.float32(2 * [[3, 1, 1, 0]]), np.float32([0, 0.5])
    # Whether there is a row with lam = 0, and if so whether more tie than are wanted.
    assert primitives(batch, x, lam).count("cond") == 2
    np.testing.assert_allclose(batch(x, lam), [[3, 1, 0, 0], [2, 0.4, 0.4, 0]], rtol=1e-6)


def test_known_lam_needs_no_tie_search():
    assert "cond" not in primitives(lambda x: ops.topk_mask(x, 2, lam=0.1), X)


def test_a_weak_lam_takes_few_passes():
    """The least of floats, below every magnitude, is no end to bisect from."""
    x = np.abs(np.random.default_rng(0).normal(size=(128, 1000))).astype(np.float32)
    k, lam = jnp.full((128, 1), 100.0), jnp.full((128, 1), 0.01)
    assert jax.jit(lambda x: evaluations((x,), k, lam, Equation(2.0, HALF_SQUARE)))(x).max() <= 9


def test_traced_lam_of_0_is_hard():
    """Tries differences that underflow, and a lam below the normal numbers, which is out of range."""
    mask = jax.jit(lambda x, k, lam: ops.topk_mask(x, k, lam=lam))
    x = np.float32([[-1.3905492e-37, -1.3905448e-37, -1.3905471e-37, -1], 4 * [-9.174512e-32], [3, 1, 2, 0]])
    x[1, 0] *= -1
    found = mask(x, np.float32([3, 2.75, 2]), np.float32([0, 0, 1e-41]))
    np.testing.assert_allclose(found[:2], [[1, 1, 1, 0], [1, 1, 0.75, 0]])
    assert np.isnan(found[2]).all()


def test_k_just_below_2_selects_only_two():
    y = ops.topk_mag(jnp.array([1.0, 0, -1, -2, 2]), 1.9999998, lam=0.10502035, p=1.1627, debias=True)
    np.testing.assert_allclose(y, [0, 0, 0, -2, 2], atol=1e-5)


def test_unselected_entries_are_exactly_zero():
    """So far below the others that any threshold there sums to k."""
    x = np.float32([1e20, 1.0, -1e-5])

    def total(x):
        y = ops.topk_mag(x, 1, lam=1e12, p=1.1, debias=True)
        return jnp.sum(y), y

    gradient, y = jax.jit(jax.grad(total, has_aux=True))(x)
    np.testing.assert_array_equal(y, np.float32([1e20, 0, 0]))
    np.testing.assert_array_equal(gradient, [1, 0, 0])


def test_a_gradient_traces_the_solver_once(monkeypatch):
    traced, solve = [], threshold._solve
    monkeypatch.setattr(threshold, "_solve", lambda *arguments: traced.append(arguments) or solve(*arguments))
    row = jax.ShapeDtypeStruct((1, 17), jnp.float32)  # of a shape that nothing else has, so that it is traced anew
    jax.eval_shape(jax.grad(lambda x: ops.topk_mag(x, 3, lam=0.1, p=1.3)[0, 0]), row)
    assert len(traced) == 1
