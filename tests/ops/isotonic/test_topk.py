"""The top-k operators by isotonic optimisation against the scalar equation: two algorithms that share little."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import relaxed_topk, topk_mag, topk_mask
from ops.isotonic import PAV, Dual, Dykstra, topk_solution
from tests.ops import oracles
from tests.ops.isotonic.certificate import adversarial

ABS, EXP = (functools.partial(relaxed_topk, phi=phi) for phi in ("abs", "exp"))


def assert_agree(found, expected, tolerance):
    """Row by row, relative to the row's largest entry."""
    for name, one, other in zip(("value", "x", "k", "lam")[: len(found)], found, expected, strict=True):
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        scale = 1.0 + np.abs(other).max(axis=-1, keepdims=True)
        assert np.max(np.abs(one - other) / scale) < tolerance, name


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("operator", "p", "options"),
    [
        (topk_mask, 2.0, {}),
        (topk_mag, 4 / 3, {"debias": True}),
        (EXP, 1.5, {}),
    ],
)
def test_pav_and_threshold_agree_in_double_precision(operator, p, options):
    x = adversarial(60)
    x[0] *= -1.0
    k = np.array([1, 6.5, 6, 15.3, 58.6, 2, 30, 12.7])
    lam = np.array([1e-4, 1e-2, 0.1, 0.3, 1.0, 1.0, 3.0, 10.0])
    cotangent = np.random.default_rng(5).normal(size=x.shape)
    found, expected = (
        oracles.with_gradients(operator, of=(0,), p=p, solver=solver, **options)(x, k, lam, cotangent)
        for solver in ("pav", "threshold")
    )
    assert_agree(found, expected, 1e-10)
    if operator is topk_mask:
        total = np.asarray(found[0]).sum(-1)
        np.testing.assert_allclose(total, k, rtol=1e-12)


@pytest.mark.parametrize(("operator", "p"), [(topk_mask, 4 / 3), (topk_mag, 2.0)])
def test_pav_and_threshold_agree_in_long_vectors_of_single_precision(operator, p):
    x = np.float32(adversarial(3_000)[[0, 1, 3, 7]])
    k, lam = np.float32([300, 300, 750, 90]), np.float32([1.0, 0.1, 10.0, 0.01])
    found, expected = (operator(x, k, lam=lam, p=p, solver=solver) for solver in ("pav", "threshold"))
    assert found.dtype == np.float32
    assert_agree([found], [expected], 1e-5)


def test_rescaled_magnitudes_of_strong_and_weak_lam_and_of_every_scale():
    """Blocks that one half hardly moves, powers that under- and overflow, and distances no float32 near x can tell."""
    normal = [1.0947, -1.1152, 0.35962, 0.33276, 0.040039, -0.032135, 0.71289, -1.7842, 1.0264, -0.40747]
    grid = [-5.0, 3, -2, 0, -3, 1, -4, 2, 4, -1]
    wide = [-6.83996e07, -1062.5, -2e-18, -9.6e-26, 3.06e25, -2.2e-17, 118894, -34487, 0.2, 0.1]
    small = [1e-29 * value for value in normal]
    x = np.float32([normal, grid, 10 * [-1000.0], normal, small, wide])
    k, lam = np.float32([1, 2, 5.834372, 10, 10, 3]), np.float32([16.666, 1.4813773e-11, 8.3763626e-7, 2e10, 2, 1e-12])
    cotangent = np.random.default_rng(5).integers(-4, 5, x.shape).astype(np.float32)
    pav, threshold = (
        jax.device_get(oracles.with_gradients(topk_mag, p=1.2, solver=solver, debias=True)(x, k, lam, cotangent))
        for solver in ("pav", "threshold")
    )
    y, in_x, _, in_lam = pav
    largest = np.abs(x).max(axis=1, keepdims=True)
    np.testing.assert_allclose(y / largest, threshold[0] / largest, atol=2e-5)
    np.testing.assert_allclose(y[1], [-5, 0, 0, 0, 0, 0, -2, 0, 2, 0], rtol=2e-5)  # two tie for half
    np.testing.assert_allclose(y[2], 10 * [-583.4372], rtol=2e-5)
    np.testing.assert_array_equal(y[3:5], x[3:5])  # all are kept
    np.testing.assert_array_equal(y[5], np.where(np.abs(x[5]) > 1e5, x[5], 0))
    for row in (0, 3, 5):
        np.testing.assert_allclose(in_x[row], threshold[1][row], rtol=1e-4, atol=1e-4)
    assert in_lam[5] == 0


def test_a_strong_lam_shrinks_entries_of_every_size():
    x = np.float32([1.6, -2.1, 6.7e7, 0.91, -0.58])
    np.testing.assert_array_equal(topk_mag(x, 5, lam=1.76e10, debias=True, solver="pav"), x)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("operator", "solver", "p", "tolerance"),
    [(topk_mask, Dykstra(20_000), 2.0, 1e-10), (topk_mag, Dual(20_000), 1.5, 1e-9)],
)
def test_iterative_solvers_agree_where_they_converge(operator, solver, p, tolerance):
    x, k, lam = adversarial(24)[[0, 1, 4, 6]], np.array([3.0, 5.5, 8.3, 12.0]), np.array([0.1, 0.3, 0.37, 0.2])
    cotangent = np.random.default_rng(5).normal(size=x.shape)
    phi = "identity" if operator is topk_mask else "half_square"

    def loss(x, k, lam):
        y, solution = topk_solution(x, k, phi=phi, lam=lam, p=p, solver=solver)
        return (y * cotangent).sum(), (y, solution.converged)

    (_, (y, converged)), gradients = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(x, k, lam)
    assert converged.all()
    expected = oracles.with_gradients(operator, p=p)(x, k, lam, cotangent)
    np.testing.assert_allclose(y, expected[0], atol=tolerance)
    assert_agree([y, *gradients], expected, 1e-7)


@pytest.mark.usefixtures("x64")
def test_signed_mask_on_the_non_negative_cone():
    x = adversarial(40)
    # Up to lam = 1 the mask uses up k, from 3 on it does not: v = 0 then.
    k, lam = np.full(8, 20.0), np.array([0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 0.3, 100.0])
    cotangent = np.random.default_rng(5).normal(size=x.shape)
    found, expected = (
        oracles.with_gradients(ABS, p=4 / 3, solver=solver)(x, k, lam, cotangent) for solver in ("pav", "threshold")
    )
    total = np.abs(found[0]).sum(-1)
    assert total.min() < 1
    assert total.max() > 20 - 1e-9
    assert_agree(found, expected, 1e-9)


def test_ten_iterations_of_dykstra_can_be_asked_for_and_what_they_lack_is_reported():
    x = np.random.default_rng(0).normal(size=(3, 400)).astype(np.float32)
    y, solution = jax.device_get(topk_solution(x, 28, lam=1.0, solver=Dykstra(max_iter=10, tol=0.0)))
    np.testing.assert_array_equal(y, topk_mask(x, 28, lam=1.0, solver=Dykstra(max_iter=10, tol=0.0)))
    assert solution.iterations.tolist() == [10, 10, 10]
    assert not solution.converged.any()
    assert np.all(solution.residual > 0.1)
    np.testing.assert_allclose(y.sum(-1), np.full(3, 28), rtol=1e-5)  # projections keep the mean
    exact, solution = jax.device_get(topk_solution(x, 28, lam=1.0, solver=PAV()))
    assert np.abs(y - exact).max() > 0.1
    assert solution.converged.all()


@functools.partial(jax.jit, static_argnames=("operator", "solver"))
def of_four_entries(x, k, lam, where, operator=topk_mask, solver="pav"):
    return operator(x, k, lam=lam, where=where, solver=solver)


@pytest.mark.parametrize("operator", [topk_mask, topk_mag])
def test_edges(operator):
    x = np.float32([[3, 1, -2, 0.5], [1, 1, 1, 1], [0, np.nan, 2, 1], [5, -4, 3, 2], [1, 2, 3, 4], [2, 1, 0, -1]])
    k, lam = np.float32([0, 2, 1, 4, 2, 2]), np.float32([1, 1, 1, 0.5, 0, 30])
    where = np.ones_like(x, bool)
    where[5, :2] = False
    found, expected = (
        np.asarray(of_four_entries(x, k, lam, where, operator, solver)) for solver in ("pav", "threshold")
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.isnan(found[2]).all()
    assert not found[0].any()
    assert not found[5, :2].any()


def test_infinite_entries_and_ties_at_a_small_lam():
    infinite = [[np.inf, 1, 1.2, -np.inf], [np.inf, np.inf, 0, 1], [-np.inf, -np.inf, -np.inf, 3]]
    ties = [[1000, 1000, 1000, 1001], [1000, 999, 1001, 1000], [1001, 1000, 1000, 1000]]
    x, k, where = np.float32(infinite + ties), np.full(6, 2, np.float32), np.ones((6, 4), bool)
    lam = np.float32([1, 1, 1, 1e-6, 1e-6, 1e-6])
    found = np.asarray(of_four_entries(x, k, lam, where))
    np.testing.assert_allclose(found, of_four_entries(x, k, lam, where, solver="threshold"), atol=1e-6)
    third, half = 1 / 3, 0.5
    shares = [[third, third, third, 1], [half, 0, 1, half], [1, third, third, third]]
    np.testing.assert_allclose(found[3:], shares, atol=1e-6)


def test_axes_and_half_precision():
    x = np.random.default_rng(0).normal(size=(6, 2, 3)).astype(np.float16)
    found = topk_mag(x, 2, lam=0.5, axis=0, solver="pav")
    assert found.dtype == np.float16
    columns = np.moveaxis(x, 0, -1).reshape(-1, 6)
    expected = oracles.by_rows(functools.partial(oracles.pooled, kind="mag"), columns, 2, 0.5)
    np.testing.assert_allclose(np.moveaxis(np.asarray(found), 0, -1).reshape(-1, 6), expected, atol=2e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"solver": "newton"},
            "solver must be one of 'threshold', 'kernel', 'loop', 'pav', 'dykstra', 'dual', got 'newton'",
        ),
        ({"solver": "dykstra", "p": 1.5}, "p must be 2 for the solver 'dykstra', got 1.5"),
        ({"solver": "pav", "axis_name": "devices"}, "axis_name"),
    ],
)
def test_arguments_are_checked(options, message):
    with pytest.raises((ValueError, NameError), match=message):
        topk_mask(np.ones(4, np.float32), 2, **options)


def test_exponentials_that_only_rounding_ties_and_that_vanish():
    """Entries selected in full move alone, and a pull of 1e-4 is found that a push of exp(-1e11) does not balance."""
    x = np.float32([[-1.6819241e-6, -2.7844576e-6, -np.inf], [2.87e22, -1.7e23, -5.8e23], [1, -np.inf, -np.inf]])
    k, lam = np.float32([2, 2, 1]), np.float32([6416.786, 3.56e26, 0.1])
    cotangent = np.float32([[0.75, 1.75, 1], [1, 1, 1], [1, 2, 3]])
    pav, threshold = (
        jax.device_get(oracles.with_gradients(relaxed_topk, phi="exp", p=1.99, solver=solver)(x, k, lam, cotangent))
        for solver in ("pav", "threshold")
    )
    for found, expected in zip(pav, threshold, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert pav[0][1, 0] > 7e-5


def test_where_nobody_competes_nothing_moves_with_k():
    absent = np.full(2, -np.inf, np.float32)
    assert jax.jit(jax.grad(lambda k: jnp.sum(topk_mask(absent, k, lam=0.1, solver="pav"))))(0.0) == 0
