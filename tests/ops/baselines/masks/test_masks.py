"""The relaxed masks of the literature against their formulas: values, derivatives, limits, shapes and dtypes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import baselines
from tests.ops import oracles
from tests.ops.baselines.masks import masks

X = oracles.samples((6, 40))
SMALL = np.round(oracles.samples((2, 7), seed=3), 2) + 0.003 * np.arange(7)  # no two entries equal

STRENGTH = {
    "entropic_ot": "epsilon",
    "sigmoid": "temperature",
    "lapsum": "temperature",
    "softsort": "temperature",
    "neuralsort": "temperature",
}
EXACT = pytest.mark.parametrize("name", STRENGTH)  # all but the perturbed mask, which has a file of its own


def mask(name, x, k, strength, **options):
    return getattr(baselines, f"{name}_topk_mask")(x, k, **{STRENGTH[name]: strength}, **options)


def expected(name, x, k, strength):
    return np.stack([getattr(masks, name)(row, k, strength) for row in np.asarray(x, np.float64)])


@EXACT
def test_agrees_with_the_formula_in_float64(x64, name):
    for k, strength in [(7, 0.1), (39, 2.0)]:
        y = mask(name, X, k, strength)
        np.testing.assert_allclose(y, expected(name, X, k, strength), rtol=0, atol=1e-11)
        np.testing.assert_allclose(y.sum(-1), np.full(6, k), rtol=1e-12)


@EXACT
def test_float32_and_nan(name):
    x = np.round(4 * X).astype(np.float32)
    x[0, 3] = np.nan
    y = mask(name, x, 7, 0.5)
    assert np.isnan(y[0]).all()
    # NeuralSort's exponents are n |x| / temperature; its rounding error is larger by as much.
    tolerance = 2e-5 if name == "neuralsort" else 4e-6
    np.testing.assert_allclose(y[1:], expected(name, x[1:], 7, 0.5), rtol=0, atol=tolerance)


@EXACT
def test_derivatives_to_second_order(x64, name):
    strength = np.array([0.7, 1.1])
    if name == "neuralsort":
        oracles.check_derivatives(lambda x, strength: mask(name, x, 3, strength), (SMALL, strength), 1e-5)
    else:
        arguments = SMALL, np.array([3.4, 2.2]), strength
        oracles.check_derivatives(lambda x, k, strength: mask(name, x, k, strength), arguments, 1e-5)


@EXACT
def test_limits_of_the_strength(x64, name):
    hard = np.stack([masks.hard(x, 7) for x in X])
    np.testing.assert_allclose(mask(name, X, 7, 1e-8 if name == "entropic_ot" else 1e-9), hard, atol=1e-12)
    np.testing.assert_allclose(mask(name, X, 7, 1e9), np.full(X.shape, 7 / 40), atol=1e-6)


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
    ]
)


@functools.cache
def of_hard_rows(name):
    """Mask, k = 2, and gradients of the rows above."""

    def loss(x, strength):
        y = mask(name, x, 2, strength)
        return jnp.sum(y**2), y

    strength = np.float32(3 * [0.5] + 4 * [1e-2])
    (_, y), gradients = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(HARD_ROWS, strength)
    return np.asarray(y), *map(np.asarray, gradients)


@EXACT
def test_minus_infinity_is_absent_and_gradients_are_finite(name):
    y, in_x, in_strength = (leaf[:3] for leaf in of_hard_rows(name))
    assert all(np.isfinite(leaf).all() for leaf in (y, in_x, in_strength))
    present = HARD_ROWS[:3] > -INF
    np.testing.assert_array_equal(y[~present], np.zeros(13))
    np.testing.assert_array_equal(in_x[~present], np.zeros(13))
    np.testing.assert_allclose(y.sum(-1), [2, 1, 0], rtol=1e-5)
    without = expected(name, HARD_ROWS[:1, present[0]], 2, 0.5)
    np.testing.assert_allclose(y[:1, present[0]], without, atol=4e-6)


@EXACT
def test_large_and_equal_entries_make_no_nan(name):
    y, in_x, in_strength = (leaf[3:] for leaf in of_hard_rows(name))
    assert all(np.isfinite(leaf).all() for leaf in (y, in_x, in_strength))
    # Standardised, six entries of such a spread are not all apart at this epsilon.
    np.testing.assert_allclose(y[0], [1, 0, 1, 0, 0, 0], atol=0.01 if name == "entropic_ot" else 1e-6)
    np.testing.assert_allclose(y[1], np.full(6, 1 / 3), atol=1e-6)


def test_vmap_along_the_first_axis_with_a_strength_for_each_column():
    x = oracles.samples((3, 9, 3), dtype=np.float32)
    strength = np.float32([[0.5, 0.5, 1], [2, 2, 2], [0.5, 0.5, 1]])
    mapped = jax.vmap(lambda x, strength: mask("neuralsort", x, 4, strength, axis=0))
    y = np.moveaxis(jax.jit(mapped)(x, strength), 1, -1)
    np.testing.assert_allclose(y[1], expected("neuralsort", np.moveaxis(x, 1, -1)[1], 4, 2.0), atol=2e-6)


def test_another_k_or_strength_compiles_nothing(caplog):
    x = oracles.samples((3, 29), dtype=np.float32)  # a shape of its own, not compiled before
    settings = [(3, 0.5), (3, np.float32(0.3)), (5, 0.5), (4.5, 2)]
    calls = [functools.partial(mask, "entropic_ot", x, k, strength) for k, strength in settings]
    assert oracles.compilations(caplog, calls) == 1


@pytest.mark.parametrize(("name", "tolerance"), [("lapsum", 2e-6), ("softsort", 1e-6)])
def test_long_vectors_sum_to_k_in_float32(name, tolerance):
    x = np.random.default_rng(0).standard_normal(200_000, np.float32)
    for temperature in (1e-3, 1.0):
        y = np.asarray(mask(name, x, 20_000, temperature), np.float64)
        assert abs(y.sum() / 20_000 - 1) <= tolerance


@pytest.mark.parametrize("name", ["sigmoid", "lapsum"])
def test_far_from_0_beside_the_temperature(x64, name):
    # In float32, entries near 1000 at a temperature of 1e-3: differences are what counts, and these are exact.
    x = 1000 + np.arange(40, dtype=np.float32)[::-1].reshape(1, 40) / 1024
    y = mask(name, x, 7, np.float32(1e-3))
    np.testing.assert_allclose(y, expected(name, x, 7, np.float32(1e-3)), atol=2e-6)


def test_no_mask_forms_the_matrix_of_all_pairs():
    n = 3000
    x = np.ones(n, np.float32)
    for name, limit in [("sigmoid", 2 * n), ("lapsum", 3 * n), ("softsort", 13 * n), ("neuralsort", 2**20)]:

        def loss(x, name=name):
            return jnp.sum(mask(name, x, 2000, 0.5) ** 2)

        found = list(oracles.equations(jax.make_jaxpr(jax.grad(loss))(x)))
        assert len(found) > 30  # the walk does reach the inside
        assert max(v.aval.size for e in found for v in e.outvars) <= limit
