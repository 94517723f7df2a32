import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from ops import topk_plan
from tests.ops import oracles


def scores(m, n, seed=0):
    """Scores of rows that agree in part on the best columns, so that limits bind."""
    return oracles.samples((m, n), seed) + oracles.samples((1, n), seed + 100)


def generic(x, k, limit, lam, p):
    """The plan by a general-purpose convex solver."""
    m, n = x.shape
    rows, columns = np.kron(np.eye(m), np.ones(n)), np.kron(np.ones(m), np.eye(n))
    found = optimize.minimize(
        lambda t: lam / p * np.sum(t**p) - x.ravel() @ t,
        np.repeat(k / n * np.ones(m), n),
        jac=lambda t: lam * t ** (p - 1) - x.ravel(),
        bounds=[(0, 1)] * (m * n),
        constraints=[
            {"type": "eq", "fun": lambda t: rows @ t - k, "jac": lambda t: rows},
            {"type": "ineq", "fun": lambda t: limit - columns @ t, "jac": lambda t: -columns},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert found.success
    return found.x.reshape(m, n)


def hard_ones(m=8, n=64, count=3):
    """Problems on which steps that see only the entries taken in part go astray: scores, k, limits, entries, lam."""
    rng = np.random.default_rng(0)
    full = np.ones((count, m, n), bool)
    outliers = np.where(rng.random((count, m, n)) < 0.02, 1e3, rng.normal(size=(count, m, n)))
    for name, x, lam in (("ties", rng.integers(0, 2, (count, m, n)), 1e-3), ("outliers", outliers, 1.0)):
        yield f"{name} with little room", x, n / 4, m / 4 * 1.0001, full, lam
    integers, one = rng.integers(-3, 4, (count, m, n)), full
    cauchy = rng.standard_cauchy((count, m, n))
    some = rng.random((count, m, n)) < 0.5
    shares = some * rng.random((count, m, n))
    closed = np.where(np.arange(n) == 0, 0.0, m / 4 * n / (n - 1))
    for lam in (1e-4, 1e-3):
        yield "integers", integers, n / 4, m / 4, one, lam
        yield "integers with room", integers, n / 4, m / 4 * 1.05, one, lam
        yield "large", 100 + 100 * cauchy.clip(-3, 3), n / 4, m / 4 * 1.05, one, lam
        yield "a small k", cauchy, 0.2, 0.2 * m / n, one, lam
        yield "a large k", integers, n - 0.2, m - 0.2 * m / n, one, lam
    for lam in (1e-4, 0.01, 1.0):
        yield "equal and a limit of 0", 0 * integers, n / 4, closed, one, lam
        yield "equal and where", 0 * integers, shares.sum(axis=2), shares.sum(axis=1), some, lam
        yield "cauchy", cauchy, n / 4, m / 4, one, lam


def test_ties_and_limits_that_bind_exactly():
    dtype, off = np.float32, 2e-4
    # With potentials of one float32 each, positions would be off by 0.1 in the last one.
    far = "scores far above lam", np.round(100 + 100 * np.stack([scores(8, 64, seed) for seed in range(3)]), 3)
    for name, x, k, limit, where, lam in (*hard_ones(), (*far, 16, 2.3, np.ones((3, 8, 64), bool), 1e-4)):
        count, m, n = x.shape
        k, limit = np.broadcast_to(k, (count, m)), np.broadcast_to(limit, (count, n))
        found = topk_plan(x.astype(dtype), k.astype(dtype), limit.astype(dtype), lam=lam, where=where)
        assert found.converged.all(), (name, lam, found.iterations, found.residual)
        assert found.iterations.max() < 60, (name, lam, found.iterations)
        assert name != far[0] or found.residual.max() < 1e-5
        mass = np.asarray(found.plan, np.float64)
        np.testing.assert_allclose(mass.sum(axis=2), k, atol=off, err_msg=name)
        assert (mass.sum(axis=1) - limit).max() <= off
        furthest = np.maximum(np.abs(mass.sum(axis=2) - k).max(axis=1), (mass.sum(axis=1) - limit).max(axis=1))
        assert (furthest <= found.residual + 1e-4).all(), (name, lam)
        assert not mass[~where].any()
        totals = np.kron(np.ones(m), np.eye(n)), limit[0], np.kron(np.eye(m), np.ones(n)), k[0]  # of columns, of rows
        best = optimize.linprog(-x[0].ravel(), *totals, bounds=[(0, float(one)) for one in where[0].ravel()])
        assert best.status == 0, (name, best)
        # Another plan has at most lam / 2 * |T|^2 to gain, which is less than lam / 2 * sum(T).
        assert np.vdot(x[0], mass[0]) >= -best.fun - lam / 2 * k[0].sum() - off * np.abs(x[0]).max() * n, (name, lam)


def test_plan_against_generic_solver(x64):
    where = np.arange(6) < 5  # a column takes no part

    def function(x, k, limit, lam):
        x, limit = jnp.pad(x, ((0, 0), (0, 1)), constant_values=jnp.nan), jnp.pad(limit, (0, 1))
        return topk_plan(x, k, limit, lam=lam, p=4 / 3, tol=1e-13, where=where).plan

    arguments = scores(3, 5, 3), np.array([1.2, 2.0, 1.5]), np.full(5, 1.4), 0.9
    found = oracles.check_derivatives(function, arguments, tolerance=2e-6)
    np.testing.assert_allclose(found[:, :5], generic(*arguments, 4 / 3), atol=2e-5)
    assert not found[:, 5].any()
    assert np.count_nonzero(found.sum(axis=0) > 1.4 - 1e-9) in (1, 2, 3)
    assert np.count_nonzero(found % 1) > 4


def test_shapes_of_batches_and_of_nothing():
    def shapes(*shape, **options):
        x = jax.ShapeDtypeStruct(shape, jnp.float32)
        found = jax.eval_shape(lambda x: topk_plan(x, 1, 1, **options), x)
        return found.plan.shape, found.converged.shape

    assert shapes(2, 3, 4) == ((2, 3, 4), (2,))
    assert shapes(4, 2, 3, axis=(-1, 0)) == ((4, 2, 3), (2,))
    assert shapes(2, 0, 3) == ((2, 0, 3), (2,))


def test_minus_infinity_counts_as_absent():
    x = np.stack([scores(8, 64, seed) for seed in range(3)]).astype(np.float32)
    where = np.random.default_rng(2).random(x.shape) < 0.7
    where[0, 0, 10:] = False  # fewer than k are left
    k, limit = np.full((3, 8), 10, np.float32), np.full((3, 64), 2, np.float32)
    # By the program of the ties above.
    absent = topk_plan(np.where(where, x, np.nan), k, limit, lam=0.5, where=where)
    infinite = topk_plan(np.where(where, x, -np.inf), k, limit, lam=0.5, where=where | True)
    np.testing.assert_allclose(absent.plan, infinite.plan, atol=1e-5)
    assert absent.converged.all()
    assert not absent.plan[~where].any()
    np.testing.assert_allclose(absent.plan[0, 0], where[0, 0], atol=1e-4)


def test_problem_without_plan_is_flagged():
    x = np.stack([scores(8, 64, seed) for seed in range(3)]).astype(np.float32)
    x[1, 0, 0] = np.nan
    k, limit, where = np.full((3, 8), 16, np.float32), np.float32(64 * [2.5]), np.ones(x.shape, bool)
    # A row of the last matrix takes every entry, but some columns less than one.
    limits, k[2, 0] = np.stack([limit, limit, np.where(np.arange(64) < 10, 0.5, np.inf)]).astype(np.float32), 64
    found = topk_plan(x, k, limits, lam=0.5, where=where, max_iter=60)  # the program of the ties above
    assert found.converged.tolist() == [True, False, False]
    assert np.isnan(found.plan).any(axis=(1, 2)).tolist() == [False, True, False]
    np.testing.assert_allclose(found.plan[2].sum(axis=1), k[2], rtol=1e-4)
    assert found.residual[2] > (found.plan[2].sum(axis=0) - limits[2]).max() - 1e-4
    assert found.residual[2] > 0.4
    np.testing.assert_allclose(found.plan[0].sum(axis=1), 16, rtol=1e-4)
    hasty = topk_plan(x, k[:1], np.stack([limit] * 3), lam=0.01, where=where, max_iter=1)
    assert not hasty.converged.any()
    assert hasty.iterations.tolist() == [1, 0, 1]
    assert hasty.residual[0] > (hasty.plan[0].sum(axis=0) - 2.5).max() - 1e-4
    assert hasty.residual[0] > 0.01


def test_only_impossible_limits_are_refused():
    x, present = np.ones((4, 3), np.float32), np.arange(4)[:, None] < 3

    def shape(x, **options):
        return jax.eval_shape(lambda x: topk_plan(x, 1, 1, **options), x)

    with pytest.raises(ValueError, match=r"^limit .* 4 .* 3 in all"):
        shape(x)
    assert shape(x, where=present).plan.shape == (4, 3)
    with pytest.raises(ValueError, match=r"^limit .* 3 .* 2 in all"):
        shape(x, where=present & (np.arange(3) < 2))
    assert jax.eval_shape(lambda limit: topk_plan(x, 1, limit), 1.0).plan.shape == (4, 3)
    # Rows of 9 for 64 columns, one of them absent: by the program of the ties above.
    x, k = np.where(np.arange(8)[:, None] < 7, np.ones((3, 8, 64), np.float32), -np.inf), np.full((3, 8), 9, np.float32)
    absent = topk_plan(x, k, np.ones((3, 64), np.float32), lam=0.5, where=np.ones(x.shape, bool))
    np.testing.assert_allclose(absent.plan.sum(axis=2), 3 * [[*7 * [9], 0]], atol=1e-3)


def test_derivative_is_linear_in_its_tangent():
    """Takes tangents whose squares under- or overflow."""
    x = np.float32([[1.0, 0.8, 0.3], [0.9, 0.7, 0.2]])
    _, along = jax.linearize(lambda x: topk_plan(x, 1.0, 0.8, lam=1.0).plan, x)
    along, tangent = jax.jit(along), np.float32([[1, 0, 0], [0, 0.5, 0]])
    for unit in (2.0**-66, 2.0**66):
        np.testing.assert_allclose(along(tangent * np.float32(unit)) / unit, along(tangent), rtol=1e-6, atol=1e-7)
