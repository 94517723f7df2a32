import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from ops import knapsack_mask, topk_mask
from tests.ops import oracles

N = 12
EXPONENTS = [2.0, 4 / 3]


def problem(seed, n=N):
    """Entries, costs and caps of orders of magnitude, and a budget."""
    rng = np.random.default_rng(seed)
    x, costs, caps = rng.normal(size=n), np.exp(rng.normal(size=n)), np.exp(0.5 * rng.normal(size=n))
    return x, costs, caps, rng.uniform() * (costs @ caps)


def bisected(x, k, costs, caps, lam, p):
    """The scalar equation of each row ``(rows, n)`` by bisection, in NumPy; ``k`` of shape ``(rows, 1)``."""

    def taken(price):
        return np.minimum(np.maximum((x - price * costs) / lam, 0), caps ** (p - 1)) ** (1 / (p - 1))

    def spent(z):
        return np.sum(costs * z, axis=1, keepdims=True)

    low = ((x - lam * caps ** (p - 1)) / costs).min(axis=1, keepdims=True) - 1
    high = (x / costs).max(axis=1, keepdims=True) + 1
    for _ in range(200):
        middle = (low + high) / 2
        more = spent(taken(middle)) > np.minimum(k, spent(caps))
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return taken((low + high) / 2)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-5), (np.float64, 1e-11)])
def test_it_solves_the_equation_at_every_strength(dtype, tolerance, p):
    strengths = np.array([1e-3, 1e-2, 0.1, 1.0, 10.0], dtype)
    problems = [problem(seed) for seed in range(40)]
    x, costs, caps = (np.stack(part).astype(dtype) for part in list(zip(*problems, strict=True))[:3])
    k = np.array([found[3] for found in problems], dtype)
    with jax.enable_x64(dtype == np.float64):
        for lam in strengths:
            z = np.asarray(knapsack_mask(x, k, costs=costs, caps=caps, lam=lam, p=p))
            wide = (part.astype(np.float64) for part in (x, k[:, None], costs, caps))
            off = np.abs(z - bisected(*wide, float(lam), p)).max(axis=1)
            assert np.all(off <= tolerance * np.maximum(1, caps.max(axis=1))), lam


@pytest.mark.parametrize("p", [4 / 3])
def test_the_unit_of_the_costs_does_not_matter(p):
    x, costs, caps, k = (np.float32(part) for part in problem(5))

    @jax.jit
    def function(unit, lam):
        def spent(costs, k):
            z = knapsack_mask(x, k, costs=costs, caps=caps, lam=lam, p=p)
            return jnp.sum(z * x), z

        (_, z), slopes = jax.value_and_grad(spent, (0, 1), has_aux=True)(unit * costs, unit * k)
        return z, slopes[0] * unit, slopes[1] * unit

    expected = function(np.float32(1), np.float32(0.3))
    exact = bisected(*(part[None].astype(float) for part in (x, k[None], costs, caps)), 0.3, p)[0]
    np.testing.assert_allclose(expected[0], exact, atol=1e-4)
    for unit in 2.0 ** np.array([-100, -60, 60, 100], np.float32):
        for one, other in zip(function(unit, np.float32(0.3)), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_weak_one_is_the_linear_program():
    for seed in range(10):
        x, costs, caps, k = problem(seed)
        found = optimize.linprog(-x, A_eq=costs[None], b_eq=[k], bounds=[(0, cap) for cap in caps])
        z = knapsack_mask(x.astype(np.float32), k, costs=costs, caps=caps, lam=1e-6)
        np.testing.assert_allclose(z, found.x, atol=1e-4)


@pytest.mark.parametrize("p", EXPONENTS)
def test_costs_of_a_row_may_span_30_orders_of_magnitude(p):
    rng = np.random.default_rng(0)
    x, lam = rng.normal(size=(400, 8)).astype(np.float32), np.geomspace(1e-3, 10, 400, dtype=np.float32)
    costs = (10 ** rng.uniform(-15, 15, size=x.shape)).astype(np.float32)
    k = np.exp(rng.uniform(np.log(costs.min(axis=1)), np.log(costs.sum(axis=1)))).astype(np.float32)
    mask = np.asarray(knapsack_mask(x, k, costs=costs, lam=lam, p=p), np.float64)
    np.testing.assert_allclose(np.sum(mask * costs, axis=1), np.minimum(k, costs.sum(axis=1)), rtol=1e-3)
    with jax.enable_x64(True):
        wide = (part.astype(np.float64) for part in (x, k, costs, lam))
        x, k, costs, lam = wide
        np.testing.assert_allclose(mask, knapsack_mask(x, k, costs=costs, lam=lam, p=p), atol=1e-4)


def test_a_row_that_floats_cannot_solve_is_nan():
    # Over what range of prices the first entry is bought in part, lam / cost = 1e40, is no float32.
    found = np.asarray(knapsack_mask(np.zeros((2, 2), np.float32), 0.5, costs=[[1e-10, 1], [1, 1]], lam=1e30))
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1], 0.25, rtol=1e-5)


@pytest.mark.parametrize("p", EXPONENTS)
def test_without_a_cap_the_budget_alone_bounds_an_entry(p, x64):
    x, costs, caps, _ = problem(6, 5)
    k, no_cap = 0.7 * costs @ caps, np.array([1, 0, 1, 0, 0], bool)

    def function(x, k, costs, lam, most=np.inf):
        return knapsack_mask(x, k, costs=costs, caps=jnp.where(no_cap, most, caps), lam=lam, p=p)

    mask = oracles.check_derivatives(function, (x, k, costs, 1.3), tolerance=1e-5)
    np.testing.assert_allclose(mask, function(x, k, costs, 1.3, most=1e3), rtol=1e-9, atol=1e-12)
    alone = knapsack_mask(np.array([3.0, 2.0, 1.0]), 8.0, costs=[4.0, 1.0, 1.0], caps=np.inf, lam=1e-3)
    np.testing.assert_allclose(alone, [0, 8, 0], atol=1e-12)
    assert (np.asarray(knapsack_mask(x, 0.0, costs=costs, caps=np.inf)) == 0).all()


def test_it_is_the_quadratic_program_for_p_2():
    x, costs, caps, k = problem(3, 6)
    lam = 0.7
    found = optimize.minimize(
        lambda z: lam / 2 * z @ z - x @ z,
        np.full(6, k / costs.sum()),
        jac=lambda z: lam * z - x,
        bounds=[(0, cap) for cap in caps],
        constraints={"type": "eq", "fun": lambda z: costs @ z - k, "jac": lambda z: costs},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    assert found.success
    np.testing.assert_allclose(
        knapsack_mask(x.astype(np.float32), k, costs=costs, caps=caps, lam=lam), found.x, atol=1e-5
    )


@pytest.mark.parametrize("p", [4 / 3])
def test_with_costs_and_caps_of_1_it_is_the_mask(p):
    x = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    for lam in (0.01, 1.0):
        np.testing.assert_allclose(
            knapsack_mask(x, 7.5, lam=lam, p=p), topk_mask(x, 7.5, lam=lam, p=p), atol=2e-6 / min(1, lam)
        )


@pytest.mark.parametrize("p", EXPONENTS)
def test_derivatives_in_all_arguments_are_right(p, x64):
    x, costs, caps, _ = problem(1, 5)
    k, lam = 0.5 * costs @ caps, 1.3

    def function(x, k, costs, caps, lam):
        return knapsack_mask(x, k, costs=costs, caps=caps, lam=lam, p=p)

    mask = oracles.check_derivatives(function, (x, k, costs, caps, lam), tolerance=1e-5)
    assert np.count_nonzero(mask % caps) > 1


def test_the_derivative_in_k_is_0_where_nothing_is_taken_in_part():
    x = np.float32([[3, 2, 1], [3, 2, 1]])
    slopes = jax.jacfwd(lambda k: knapsack_mask(x, k, lam=0.1).sum(axis=1))(np.float32([1.5, 2]))
    np.testing.assert_allclose(slopes, [[1, 0], [0, 0]], atol=1e-6)


def test_booleans_are_numbers():
    x, taken = [3.0, 2.0, 1.0], np.array([True, False, True])
    found = knapsack_mask(x, 1.5, costs=np.ones(3, bool), caps=taken, lam=0.1)
    np.testing.assert_array_equal(found, knapsack_mask(x, 1.5, caps=np.float32(taken), lam=0.1))


def test_the_budget_is_spent_or_everything_is_taken():
    x, costs, caps, _ = problem(2)
    for k in (0.0, 1e-3, 1.0, costs @ caps, 1e6):
        z = np.asarray(knapsack_mask(x.astype(np.float32), np.float32(k), costs=costs, caps=caps, lam=0.3))
        np.testing.assert_allclose(costs @ z, min(k, costs @ caps), rtol=1e-5)
        assert (z >= 0).all()
        assert (z <= caps.astype(np.float32)).all()


def test_density_is_a_share_of_what_all_that_takes_part_costs(x64):
    x, costs, caps, _ = problem(4, 6)
    where = np.arange(6) != 2

    def by_share(density, costs, caps):
        return knapsack_mask(x, density=density, costs=costs, caps=caps, lam=0.8, where=where)

    def by_budget(density, costs, caps):
        budget = density * jnp.sum(jnp.where(where, costs * caps, 0.0))
        return knapsack_mask(x, budget, costs=costs, caps=caps, lam=0.8, where=where)

    at, along = (0.35, costs, caps), (0.7, costs**0.5, 1 / caps)
    for found, expected in zip(jax.jvp(by_share, at, along), jax.jvp(by_budget, at, along), strict=True):
        assert np.count_nonzero(found) > 1
        np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_array_equal(by_share(1.0, costs, caps), np.where(where, caps, 0))
    shares = np.array([0.1, 0.5, 0.9])
    spent = knapsack_mask(np.tile(x, (3, 1)), density=shares, costs=costs, caps=caps) @ costs
    np.testing.assert_allclose(spent, shares * (costs @ caps), rtol=1e-9)


def test_absent_infinite_and_impossible_entries():
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
    # Traced: costs and caps that are known to be impossible are refused.
    found = np.asarray(jax.jit(lambda costs, caps: knapsack_mask(x, k, costs=costs, caps=caps, lam=0.1))(costs, caps))
    for row, (*_, expected) in zip(found, rows, strict=True):
        assert np.isnan(row).all() if expected is None else row.tolist() == expected


def test_entries_that_take_no_part_are_as_if_they_were_not_there():
    where = np.array([True, True, False, True])
    rest = knapsack_mask([1.0, 3.0, 2.0], 1.5, costs=[1.0, 2.0, 3.0], lam=0.5)
    among = knapsack_mask([1.0, 3.0, np.nan, 2.0], 1.5, costs=[1.0, 2.0, 0.0, 3.0], lam=0.5, where=where)
    np.testing.assert_allclose(among[where], rest, rtol=1e-6)
    assert among[2] == 0


def test_gradients_are_finite_where_entries_are_not():
    x = jnp.array([1.0, -jnp.inf, jnp.inf, 2.0, 1.9])

    def function(x, costs, caps):
        return knapsack_mask(x, 2.0, costs=costs, caps=caps, lam=0.5)[3]

    found = jax.jit(jax.grad(function, argnums=(0, 1, 2)))(x, jnp.array([1.0, 2.0, 0.5, 1.0, 1.0]), jnp.ones(5))
    assert all(np.isfinite(part).all() for part in found)
    assert found[0][3] > 0


@pytest.mark.parametrize("p", EXPONENTS)
def test_gradients_are_0_where_there_is_nothing_to_take(p):
    def function(x, k, costs, lam, where):
        return jnp.sum(knapsack_mask(x, k, costs=costs, lam=lam, p=p, where=where) ** 2)

    arguments = jnp.float32([1, 2, 3]), jnp.float32(1), jnp.float32([1, 2, 1]), jnp.float32(0.5)
    found = jax.jit(jax.grad(function, argnums=(0, 1, 2, 3)))(*arguments, np.zeros(3, bool))
    assert all((np.asarray(part) == 0).all() for part in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": -1.0}, "k must be finite and >= 0"),
        ({"k": 1.0, "lam": 0.0}, "lam must be in"),
        ({"k": 1.0, "p": 3.0}, "p must be"),
        ({"k": 1.0, "costs": np.ones(4)}, "costs"),
        ({"density": 1.5}, r"density must be in \[0, 1\], got 1.5"),
        ({"k": 1.0, "costs": np.float32([1, 0, 1])}, "costs must be positive and finite, got 0.0"),
        ({"k": 1.0, "costs": -2.0, "where": np.array([0, 0, 1], bool)}, "costs must be positive and finite, got -2.0"),
        ({"k": 1.0, "costs": np.float32([1, np.inf, 1])}, "costs must be positive and finite, got inf"),
        ({"k": 1.0, "caps": np.float32([1, 1, -3])}, "caps must be >= 0, got -3.0"),
        ({"density": 0.5, "caps": np.inf}, "caps must be >= 0 and finite, as the budget is a density, got inf"),
    ],
)
def test_what_cannot_be_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        knapsack_mask(np.zeros(3, np.float32), **arguments)


@pytest.mark.parametrize("known", [True, False])
def test_budgets_of_billions_are_no_integers_of_32_bits(known):
    def mask(x):
        return knapsack_mask(x, 5_000_000_000, costs=np.float32([4e9, 1e9, 1e9]), lam=0.1)

    found = mask([3.0, 2.0, 1.0]) if known else jax.jit(mask)(jnp.float32([3, 2, 1]))
    np.testing.assert_allclose(found, [0.75, 1, 1], rtol=1e-6)
    with pytest.raises(ValueError, match=r"^costs must be whole numbers that int32 holds"):
        knapsack_mask([3.0, 2.0, 1.0], 3, costs=np.array([2**33 + 4, 1, 1]))
