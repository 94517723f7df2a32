import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import knapsack_mask
from tests.ops import oracles
from tests.ops.oracle.knapsack import knapsack
from tests.ops.oracle.problem import problem


def drawn(seed, n):
    """Entries, costs and caps of orders of magnitude, and a budget."""
    rng = np.random.default_rng(seed)
    x, costs, caps = rng.normal(size=n), np.exp(rng.normal(size=n)), np.exp(0.5 * rng.normal(size=n))
    return x, costs, caps, rng.uniform() * (costs @ caps)


def test_unit_of_costs_does_not_matter():
    x, costs, _, k = (np.float32(part) for part in drawn(5, 12))

    @jax.jit
    def function(unit):
        def spent(costs, k):
            z = knapsack_mask(x, k, costs=costs, lam=0.3, p=4 / 3)
            return jnp.sum(z * x), z

        (_, z), slopes = jax.value_and_grad(spent, (0, 1), has_aux=True)(unit * costs, unit * k)
        return z, slopes[0] * unit, slopes[1] * unit

    expected = function(np.float32(1))
    for unit in 2.0 ** np.array([-100, 100], np.float32):
        for one, other in zip(function(unit), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_costs_may_span_30_decades():
    p = 4 / 3
    rng = np.random.default_rng(0)
    x, lam = rng.normal(size=(400, 8)).astype(np.float32), np.geomspace(1e-3, 10, 400, dtype=np.float32)
    costs = (10 ** rng.uniform(-15, 15, size=x.shape)).astype(np.float32)
    k = np.exp(rng.uniform(np.log(costs.min(axis=1)), np.log(costs.sum(axis=1)))).astype(np.float32)
    mask = np.asarray(knapsack_mask(x, k, costs=costs, lam=lam, p=p), np.float64)
    np.testing.assert_allclose(np.sum(mask * costs, axis=1), np.minimum(k, costs.sum(axis=1)), rtol=1e-3)


def test_row_beyond_float_range_is_nan():
    # Over what range of prices the first entry is bought in part, lam / cost = 1e40, is no float32.
    found = np.asarray(knapsack_mask(np.zeros((2, 2), np.float32), 0.5, costs=[[1e-10, 1], [1, 1]], lam=1e30))
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1], 0.25, rtol=1e-5)


def test_derivatives_in_all_arguments(x64):
    """Entries without a cap are bounded by the budget alone."""
    x, costs, caps, _ = drawn(6, 5)
    k, no_cap = 0.7 * costs @ caps, np.array([1, 0, 1, 0, 0], bool)

    def function(x, k, costs, caps, lam):
        return knapsack_mask(x, k, costs=costs, caps=jnp.where(no_cap, np.inf, caps), lam=lam, p=4 / 3)

    mask = oracles.check_derivatives(function, (x, k, costs, caps, 1.3), tolerance=1e-5)
    expected = knapsack(problem(x[None], k, 1.3, 4 / 3, extra=costs[None]), np.where(no_cap, 1e3, caps))
    np.testing.assert_allclose(mask, np.float64(expected.wanted["value"][0]), rtol=1e-9, atol=1e-12)
    alone = knapsack_mask(np.array([3.0, 2.0, 1.0]), 8.0, costs=[4.0, 1.0, 1.0], caps=np.inf, lam=1e-3)
    np.testing.assert_allclose(alone, [0, 8, 0], atol=1e-12)


def test_density_is_a_share_of_total_cost(x64):
    x, costs, caps, _ = drawn(4, 6)
    where = np.arange(6) != 2

    def by_share(density, costs, caps):
        return knapsack_mask(x, density=density, costs=costs, caps=caps, lam=0.8, where=where)

    def by_budget(density, costs, caps):
        budget = density * jnp.sum(jnp.where(where, costs * caps, 0.0))
        return knapsack_mask(x, budget, costs=costs, caps=caps, lam=0.8, where=where)

    at, along = (0.35, costs, caps), (0.7, costs**0.5, 1 / caps)
    shares, budgets = (jax.jit(lambda at, f=f: jax.jvp(f, at, along)) for f in (by_share, by_budget))
    for found, expected in zip(shares(at), budgets(at), strict=True):
        assert np.count_nonzero(found) > 1
        np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_array_equal(shares((1.0, costs, caps))[0], np.where(where, caps, 0))


def test_infinite_and_impossible_entries():
    inf, nan = np.inf, np.nan
    # Entries, costs, caps and budget of a row, and what is taken; None for a row that has to be NaN.
    rows = [
        ([1, -inf, inf, 2], [1, 2, 0.5, 1], [1, 1, 3, 1], 2, [0, 0, 3, 0.5]),
        ([-inf, 3, 2, 1], [0, 4, 1, 1], [1, 1, 1, 1], 3, [0, 0.25, 1, 1]),
        ([-inf, -inf, -inf, -inf], [1, 1, 1, 1], [1, 1, 1, 1], 1, [0, 0, 0, 0]),
        ([1, 2, 3, 4], [1, 1, 1, 1], [0, 0, 0, 0], 7, [0, 0, 0, 0]),
        ([1, 2, 3, 4], [3, 3, 3, 3], [1, 1, 1, 1], 70, [1, 1, 1, 1]),
        ([1, 2, 3, 4], [1, 1, 1, 1], [1, 1, 1, 1], 0, [0, 0, 0, 0]),
        ([1, nan, 3, 4], [1, 1, 1, 1], [1, 1, 1, 1], 1, None),
        ([1, nan, 3, 4], [1, 1, 1, 1], [1, 1, 1, 1], 0, None),
        ([1, nan, 3, 4], [1, 1, 1, 1], [1, 1, 1, 1], 90, None),
        ([1, 2, 3, 4], [1, 0, 1, 1], [1, 1, 1, 1], 1, None),
        ([1, 2, 3, 4], [1, inf, 1, 1], [1, 1, 1, 1], 1, None),
        ([1, 2, 3, 4], [1, 1, 1, 1], [1, -1, 1, 1], 1, None),
        ([1, 2, 3, 4], [1, 1, 1, 1], [nan, 1, 1, 1], 1, None),
    ]
    x, costs, caps, k = (np.array(part, np.float32) for part in list(zip(*rows, strict=True))[:4])

    @jax.jit  # costs and caps that are known to be impossible are refused
    def with_gradients(*arguments):
        found, pull = jax.vjp(lambda x, costs, caps: knapsack_mask(x, k, costs=costs, caps=caps, lam=0.1), *arguments)
        return found, pull(jnp.ones_like(found))

    found, gradients = with_gradients(x, costs, caps)
    for row, (*_, expected) in zip(np.asarray(found), rows, strict=True):
        assert np.isnan(row).all() if expected is None else row.tolist() == expected
    assert all(np.isfinite(gradient[:6]).all() for gradient in gradients)
    assert gradients[1][0, 3] < 0


@pytest.mark.parametrize("name", ["costs", "caps"])
def test_nan_is_refused_if_known(name):
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got nan"):
        knapsack_mask(np.ones(3), 2.0, **{name: np.array([1.0, np.nan, 1.0])})


def test_budget_may_exceed_int32():
    def mask(x):
        return knapsack_mask(x, 5_000_000_000, costs=np.float32([4e9, 1e9, 1e9]), lam=0.1)

    np.testing.assert_allclose(jax.jit(mask)(jnp.float32([3, 2, 1])), [0.75, 1, 1], rtol=1e-6)
