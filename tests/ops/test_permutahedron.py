"""Sort, rank, quantile and projection: permutations by brute force, the hull by a generic solver, entries far away."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops.permutahedron import project_permutahedron, soft_quantile, soft_rank, soft_sort
from tests.ops import oracles
from tests.ops.oracle.permutahedron import project
from tests.ops.oracle.problem import problem

pytestmark = pytest.mark.usefixtures("x64")

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))


def test_linear_maximisation_by_brute_force():
    found = project_permutahedron(X, W, lam=0)
    for y, x, w in zip(np.asarray(found), X, W, strict=True):
        every = np.array(list(itertools.permutations(w)))
        np.testing.assert_allclose(y, every[np.argmax(every @ x)])
    ties, weights = np.tile([1.0, 2.0, 1.0, 0.0], (3, 1)), np.tile([5.0, 7.0, 6.0, 4.0], (3, 1))
    np.testing.assert_array_equal(
        project_permutahedron(ties, weights, lam=0)[0], [6.0, 7.0, 5.0, 4.0]
    )  # the first of equals first
    flags = np.array([[True, False, True, False]])
    found = [project_permutahedron(X, w, lam=0) for w in (flags, flags.astype(float))]
    np.testing.assert_array_equal(*found)


def test_projection_against_generic_solver():
    p = 1.5
    project = functools.partial(project_permutahedron, lam=0.7, p=p)
    for y, x, w in zip(np.asarray(project(X, W)), X, W, strict=True):
        best = oracles.projected(x, w, 0.7, p)
        ours, least = (0.7 / p * np.sum(np.abs(z) ** p) - x @ z for z in (y, best))
        assert ours <= least + 1e-9
        np.testing.assert_allclose(y, best, atol=2e-4)
    x = np.array([[np.nan, 1, 2, 0], [1, np.nan, 2, 0], [1, 3, 2, 0]])
    np.testing.assert_array_equal(np.isnan(project(x, W)).all(axis=1), [True, True, False])
    np.testing.assert_array_equal(np.isnan(project(W, x)).all(axis=1), [True, True, False])


# The last solver has one float for each entry, whose rounding is above lam.
@pytest.mark.parametrize(
    ("dtype", "descending", "solver", "p"),
    [(np.float32, False, "pav", 2.0), (np.float64, True, "pav", 1.5), (np.float32, False, "dykstra", 2.0)],
)
def test_far_masks_lose_no_small_entry(dtype, descending, solver, p):
    sign = -1 if descending else 1
    far = np.array([-1e9, 1e9, -1e30, float(np.finfo(dtype).min)])[:, None]
    x = sign * np.concatenate([np.tile([0.3, 0.1, 0.2], (4, 1)), np.tile(far, (1, 5))], axis=1).astype(dtype)
    expected = np.where(far < 0, [[8, 6, 7, 3, 3, 3, 3, 3]], [[3, 1, 2, 6, 6, 6, 6, 6]])

    @jax.jit
    def ranks_and_slope(x):
        ranks, slopes = jax.vjp(functools.partial(soft_rank, lam=1e-3, p=p, descending=descending, solver=solver), x)
        return ranks, slopes(jnp.tile(jnp.arange(8, dtype=dtype), (4, 1)))[0]

    ranks, slope = jax.device_get(ranks_and_slope(x))
    np.testing.assert_allclose(ranks, expected, rtol=1e-5)
    assert not slope[:, :3].any()
    assert np.isfinite(slope).all()


def test_quantiles_without_regularisation():
    q, x = np.array([0.0, 0.3, 0.5, 1.0]), W.reshape(3, 2, 2)

    def quantiles(q):
        return [soft_quantile(x, q, lam=0.0, axis=axis) for axis in (1, (0, 2))], soft_quantile(np.array([3.0]), q[1])

    # Along the second of the probabilities: 0.3 is 0.3 of the way from 0 to 1, 1.5 of that from 0 to 5.
    (found, one), (slopes, _) = jax.jit(lambda q: jax.jvp(quantiles, (q,), (jnp.eye(4)[1],)))(q)
    for quantile, slope, axis, last, below in zip(found, slopes, (1, (0, 2)), (1, 5), (0, 1), strict=True):
        np.testing.assert_allclose(quantile, np.quantile(x, q, axis=axis))
        low, high = np.quantile(x, [below / last, (below + 1) / last], axis=axis)
        np.testing.assert_allclose(slope, np.eye(4)[1].reshape(4, *low.ndim * [1]) * last * (high - low), atol=1e-12)
    assert one == 3
    assert jax.eval_shape(soft_quantile, x[:0], q).shape == (4, 0, 2)
    assert jax.eval_shape(soft_sort, np.zeros((2, 0))).shape == (2, 0)


def test_soft_sort_is_nan_on_overflow():
    x = np.float32([-7.1465446e29, 9.99001e29, 7.1465446e29, 0.0, 9.99001e29])
    found = soft_sort(np.stack([x, x]), lam=np.float32([3.3157815e11, 1e-32]), p=1.9)
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1], np.sort(x), rtol=1e-6)


def test_absent_and_infinite_entries():
    """Absent ones are as if they were not there, infinite ones come last."""
    p, q = 1.5, np.array([0.3, 1.0])  # p takes powers of what is absent
    rng = np.random.default_rng(3)
    x, lam = rng.normal(size=(4, 8)), np.array([0.0, 0.3, 1.0, 5.0])
    finite = rng.permuted(np.tile(np.arange(8) < 5, (4, 1)), axis=1)
    rest = x[finite].reshape(4, 5)
    # Four rows with absent entries, four with infinite ones, one of nothing, and one of one entry among absent ones.
    given = [np.where(finite, x, other) for other in (np.nan, np.inf)]
    given = np.concatenate([*given, np.ones((1, 8)), [[2.0, *7 * [-np.inf]]]])
    where = np.concatenate([finite, np.ones((4, 8), bool), np.zeros((1, 8), bool), np.ones((1, 8), bool)])
    options = {"lam": np.concatenate([lam, lam, [1.0, 1.0]]), "p": p, "where": where}

    @jax.jit
    def everything(x):
        def total(x):
            quantiles, ranks = soft_quantile(x, q, **options), soft_rank(x, **options)
            return quantiles[0].sum() + ranks.sum(where=x == np.inf), (quantiles, ranks)

        slope, (quantiles, ranks) = jax.grad(total, has_aux=True)(x)
        falling = (function(x, descending=True, **options | {"p": 2.0}) for function in (soft_sort, soft_rank))
        return slope, quantiles, ranks, *falling

    def projected(x, w, p, **options):
        of = problem(x, 0, lam, p, **options)
        wanted = project(of, of.x, np.longdouble(w), bool(options)).wanted
        return {name: values.astype(float) for name, values in wanted.items()}

    slope, quantiles, ranks, falling_sort, falling_ranks = map(np.asarray, everything(given))
    same = functools.partial(np.testing.assert_allclose, atol=1e-9)
    places = np.tile(np.arange(1.0, 6), (4, 1))
    falling = projected(-places, rest, 2.0)["value"]
    same(falling_sort[:4], np.concatenate([falling, np.full((4, 3), -np.inf)], axis=1))
    same(falling_sort[4:8], np.concatenate([np.full((4, 3), np.inf), falling], axis=1))
    same(falling_ranks[:4][finite], projected(-rest, places, 2.0)["value"].ravel())
    same(ranks[4:8][finite], projected(rest, places, p)["value"].ravel())
    same(np.sort(ranks[4:8][~finite].reshape(4, 3)), [[6, 7, 8]] * 4)
    assert (falling_ranks[:4][~finite] == 0).all()
    assert (falling_ranks[8] == 0).all()
    # 0.3 is 1.2 of the way from 0 to 4, 2.1 of that from 0 to 7; at lam = 0 there is no one slope.
    for first, shares, last in ((0, [0, 0.8, 0.2, 0, 0], None), (4, [0, 0, 0.9, 0.1, 0], np.inf)):
        rows = slice(first, first + 4)
        rising = projected(places, rest, p, cotangent=np.tile(shares, (4, 1)))
        same(quantiles[0, rows], rising["value"] @ shares)
        same(quantiles[1, rows], last or rising["value"][:, -1])
        same(slope[rows][finite].reshape(4, 5)[1:], rising["x"][1:])
        assert (slope[rows][~finite] == 0).all()
    np.testing.assert_array_equal(quantiles[:, 8:], 2 * [[np.nan, 2.0]])
