"""The relaxed masks of the literature against their formulas: values, derivatives, limits, rows that are hard."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special, stats

from ops import baselines, hard_topk_mask
from tests.ops import oracles

X = oracles.samples((6, 40))
SMALL = np.round(oracles.samples((2, 7), seed=3), 2) + 0.003 * np.arange(7)  # no two entries equal


def by_threshold(cumulative, x, k, lam):
    """``F((x - tau) / lam)`` with ``tau`` by Brent's method."""

    def excess(tau):
        return np.sum(cumulative((x - tau) / lam)) - k

    low, high = x.min() - 60 * lam, x.max() + 60 * lam
    tau = optimize.brentq(excess, low, high, xtol=1e-15, rtol=4 * np.finfo(float).eps)
    return cumulative((x - tau) / lam)


def entropic_ot(x, k, lam):
    """The squashed entries through the logistic function: Sinkhorn's fixed point."""
    u = special.expit((x - x.mean()) / x.std())
    return by_threshold(special.expit, 2 * u, k, lam)


def softsort(x, k, lam):
    """Rows of the matrix of SoftSort."""
    s = np.sort(x)[::-1]
    return special.softmax(-np.abs(s[:, None] - x[None, :]) / lam, axis=1)[:k].sum(0)


def neuralsort(x, k, lam):
    """Rows of the matrix of NeuralSort."""
    slopes = x.size + 1 - 2 * np.arange(1, x.size + 1)
    distances = np.abs(x[:, None] - x[None, :]).sum(1)
    return special.softmax((slopes[:, None] * x[None, :] - distances[None, :]) / lam, axis=1)[:k].sum(0)


# All but the perturbed mask and that of DFTopK, which have files of their own.
FORMULAS = {
    "entropic_ot_topk": entropic_ot,
    "sigmoid_topk": lambda *row: by_threshold(special.expit, *row),
    "lapsum_topk": lambda *row: by_threshold(stats.laplace.cdf, *row),
    "softsort_topk": softsort,
    "neuralsort_topk": neuralsort,
}
EXACT = pytest.mark.parametrize("name", FORMULAS)


def mask(name, x, k, lam):
    return getattr(baselines, f"{name}_mask")(x, k, lam=lam)


def expected(name, x, k, lam):
    return np.stack([FORMULAS[name](row, k, lam) for row in np.asarray(x, np.float64)])


@EXACT
def test_agrees_with_the_formula_in_float64(x64, name):
    """An entry where a ``where`` is False is as if it was not there, even a NaN."""
    k, least = 7, 1e-8 if name == "entropic_ot_topk" else 1e-9
    where, options = np.full(40, True), {}
    if name not in ("softsort_topk", "neuralsort_topk"):
        where = np.arange(40) % 5 > 0
        options = {"where": where}
    lam = np.array([0.1, 0.1, 2.0, 2.0, least, 1e9])
    y = np.asarray(getattr(baselines, f"{name}_mask")(np.where(where, X, np.nan), k, lam=lam, **options))
    assert not y[:, ~where].any()
    y, x = y[:, where], X[:, where]
    np.testing.assert_allclose(y[:2], expected(name, x[:2], k, 0.1), rtol=0, atol=1e-11)
    np.testing.assert_allclose(y[2:4], expected(name, x[2:4], k, 2.0), rtol=0, atol=1e-11)
    np.testing.assert_allclose(y[4], oracles.hard(x[4], k), atol=1e-12)
    np.testing.assert_allclose(y[5], np.full(where.sum(), k / where.sum()), atol=1e-6)
    np.testing.assert_allclose(y.sum(-1), np.full(6, k), rtol=1e-12)


@pytest.mark.parametrize("name", ["entropic_ot_topk", "lapsum_topk"])  # the first is logistic
def test_second_derivatives_of_thresholds(x64, name):
    arguments = SMALL, np.array([3.4, 2.2]), np.array([0.7, 1.1])
    oracles.check_derivatives(lambda x, k, lam: mask(name, x, k, lam), arguments, 1e-5)


@pytest.mark.parametrize("name", ["softsort_topk", "neuralsort_topk", "dftopk"])
def test_derivatives_by_the_rules_of_jax(x64, name):
    """Some numbers are held constant: those on which nothing depends."""
    oracles.check_gradients(lambda x, lam: mask(name, x, 3, lam), (SMALL, np.array([0.7, 1.1])))


INF = np.inf
HARD_ROWS = np.float32(
    [
        [-INF, 1, 2, 3, -INF, 0.5],
        [0.1, -INF, -INF, -INF, -INF, -INF],
        [-INF, -INF, -INF, -INF, -INF, -INF],
        [3e38, -3e38, 1e38, 0, 1, 2],
        [1, 1, 1, 1, 1, 1],
        [INF, INF, 1, 2, 3, 4],
        [1e-30, 0, 0, 0, 0, 0],
        [np.nan, 1, 2, 3, 0, 0.5],
        [2, 1, 1, -1, 0.5, -0.25],
    ]
)


@functools.cache
def compiled(name):
    """The mask of two entries; and, compiled, its slopes in ``x`` and ``lam`` with its values."""
    function = functools.partial(getattr(baselines, f"{name}_mask"), k=2)

    def loss(x, lam):
        y = function(x, lam=lam)
        return jnp.sum(y**2), y

    return function, jax.jit(jax.grad(loss, (0, 1), has_aux=True))


@EXACT
def test_infinite_equal_and_nan_entries(name):
    lam = np.float32(3 * [0.5] + 4 * [1e-2] + 2 * [0.5])
    (in_x, in_lam), y = jax.device_get(compiled(name)[1](HARD_ROWS, lam))
    assert all(np.isfinite(leaf[:7]).all() for leaf in (y, in_x, in_lam))
    assert np.isnan(y[7]).all()
    absent = HARD_ROWS == -INF
    np.testing.assert_array_equal(y[absent], 0)
    np.testing.assert_array_equal(in_x[absent], 0)
    np.testing.assert_allclose(y[:3].sum(-1), [2, 1, 0], rtol=1e-5)
    np.testing.assert_allclose(y[:1, ~absent[0]], expected(name, HARD_ROWS[:1, ~absent[0]], 2, 0.5), atol=4e-6)
    # Standardised, six entries of such a spread are not all apart at this lam.
    np.testing.assert_allclose(y[3], [1, 0, 1, 0, 0, 0], atol=0.01 if name == "entropic_ot_topk" else 1e-6)
    np.testing.assert_allclose(y[4], np.full(6, 1 / 3), atol=1e-6)
    np.testing.assert_allclose(y[8:], expected(name, HARD_ROWS[8:], 2, 0.5), atol=4e-6)


@pytest.mark.parametrize("name", [*FORMULAS, "dftopk"])
def test_lam_0_is_hard_and_without_slopes(name):
    function, gradient = compiled(name)
    (in_x, in_lam), y = jax.device_get(gradient(HARD_ROWS, np.float32(8 * [0] + [0.5])))
    hard = hard_topk_mask(HARD_ROWS, 2)
    np.testing.assert_array_equal(y[:8], np.asarray(hard)[:8])
    np.testing.assert_array_equal(function(HARD_ROWS, lam=0), hard)
    assert np.any((y[8] > 0) & (y[8] < 1))
    assert not in_x[:7].any()
    assert not in_lam[:7].any()
    assert in_x[8].any()
    assert np.isnan(gradient(HARD_ROWS, np.float32(8 * [-1] + [np.inf]))[1]).all()


def test_a_fractional_k_at_lam_0(x64):
    hard = mask("softsort_topk", X, 2.25, 0)
    np.testing.assert_array_equal(np.sort(hard), 6 * [[*37 * [0], 0.25, 1, 1]])
    np.testing.assert_allclose(hard, mask("softsort_topk", X, 2.25, np.full(6, 1e-9)), atol=1e-12)


def test_long_vectors_sum_to_k_in_float32():
    x = np.random.default_rng(0).standard_normal(100_000, np.float32)
    for lam in (1e-3, 1.0):
        y = np.asarray(baselines.softsort_topk_mask(x, 10_000, lam=lam), np.float64)
        assert abs(y.sum() / 10_000 - 1) <= 1e-6


def test_entries_far_from_0_beside_lam(x64):
    # In float32, entries near 1000 at a lam of 1e-3: differences are what counts, and these are exact.
    x = 1000 + np.arange(40, dtype=np.float32)[::-1].reshape(1, 40) / 1024
    y = mask("sigmoid_topk", x, 7, np.float32(1e-3))
    np.testing.assert_allclose(y, expected("sigmoid_topk", x, 7, np.float32(1e-3)), atol=2e-6)


def test_no_mask_builds_a_pairwise_matrix():
    n = 3000
    x = np.ones(n, np.float32)
    for name, limit in [
        ("sigmoid_topk", 2 * n),
        ("lapsum_topk", 3 * n),
        ("softsort_topk", 13 * n),
        ("neuralsort_topk", 2**20),
    ]:

        def loss(x, name=name):
            return jnp.sum(mask(name, x, 2000, 0.5) ** 2)

        found = list(oracles.equations(jax.make_jaxpr(jax.grad(loss))(x)))
        assert len(found) > 30  # the walk does reach the inside
        assert max(v.aval.size for e in found for v in e.outvars) <= limit
