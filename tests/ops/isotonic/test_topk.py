"""The top-k operators by isotonic optimisation against the oracle, which solves a scalar equation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import relaxed_topk, topk_mag, topk_mask
from ops.isotonic import Dual, Dykstra, topk_solution
from tests.ops import oracles
from tests.ops.isotonic.certificate import adversarial


def assert_agree(found, expected, tolerance):
    """Row by row, relative to the row's largest entry."""
    for (name, other), one in zip(expected.items(), found, strict=True):
        one = np.asarray(one, np.float64).reshape(len(other), -1)
        scale = 1.0 + np.abs(other).max(axis=-1, keepdims=True)
        assert np.max(np.abs(one - other) / scale) < tolerance, name


def test_pav_of_long_vectors_of_single_precision():
    x = np.float32(adversarial(3_000)[[0, 1, 3, 7]])
    k, lam = np.float32([300, 300, 750, 90]), np.float32([1.0, 0.1, 10.0, 0.01])
    found = topk_mask(x, k, lam=lam, p=4 / 3, solver="pav")
    assert found.dtype == np.float32
    assert_agree([found], {"value": oracles.differentiated(x, k, lam, 4 / 3)["value"]}, 1e-5)


def test_rescaled_magnitudes_of_strong_and_weak_lam_and_of_every_scale():
    """Blocks that one half hardly moves, powers that under- and overflow, and distances no float32 near x can tell."""
    normal = [1.0947, -1.1152, 0.35962, 0.33276, 0.040039, -0.032135, 0.71289, -1.7842, 1.0264, -0.40747]
    grid = [-5.0, 3, -2, 0, -3, 1, -4, 2, 4, -1]
    wide = [-6.83996e07, -1062.5, -2e-18, -9.6e-26, 3.06e25, -2.2e-17, 118894, -34487, 0.2, 0.1]
    small = [1e-29 * value for value in normal]
    x = np.float32([normal, grid, 10 * [-1000.0], normal, small, wide])
    k, lam = np.float32([1, 2, 5.834372, 10, 10, 3]), np.float32([16.666, 1.4813773e-11, 8.3763626e-7, 2e10, 2, 1e-12])
    cotangent = np.random.default_rng(5).integers(-4, 5, x.shape).astype(np.float32)
    pav = jax.device_get(oracles.with_gradients(topk_mag, p=1.2, solver="pav", debias=True)(x, k, lam, cotangent))
    expected = oracles.differentiated(x, k, lam, 1.2, "mag", debias=True, cotangent=cotangent)
    y, in_x, _, in_lam = pav
    largest = np.abs(x).max(axis=1, keepdims=True)
    np.testing.assert_allclose(y / largest, expected["value"] / largest, atol=2e-5)
    np.testing.assert_allclose(y[1], [-5, 0, 0, 0, 0, 0, -2, 0, 2, 0], rtol=2e-5)  # two tie for half
    np.testing.assert_allclose(y[2], 10 * [-583.4372], rtol=2e-5)
    np.testing.assert_array_equal(y[3:5], x[3:5])  # all are kept
    np.testing.assert_array_equal(y[5], np.where(np.abs(x[5]) > 1e5, x[5], 0))
    for row in (0, 3, 5):
        np.testing.assert_allclose(in_x[row], expected["x"][row], rtol=1e-4, atol=1e-4)
    assert in_lam[5] == 0


def test_ties_share_at_a_small_lam_and_where_nobody_competes_nothing_moves_with_k():
    x = np.float32([[1000, 1000, 1000, 1001], [1000, 999, 1001, 1000], 4 * [-np.inf]])

    def total(k):
        found = topk_mask(x, k, lam=1e-6, solver="pav")
        return jnp.sum(found), found

    in_k, found = jax.jit(jax.grad(total, has_aux=True))(np.float32([2, 2, 0]))
    np.testing.assert_allclose(found[:2], [[1 / 3, 1 / 3, 1 / 3, 1], [0.5, 0, 1, 0.5]], atol=1e-6)
    assert in_k[2] == 0


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
    kind = "mask" if operator is topk_mask else "mag"
    expected = oracles.differentiated(x, k, lam, p, kind, cotangent=cotangent)
    np.testing.assert_allclose(y, expected["value"], atol=tolerance)
    assert_agree([y, *gradients], expected, 1e-7)


def test_ten_iterations_of_dykstra_can_be_asked_for_and_what_they_lack_is_reported():
    x = np.random.default_rng(0).normal(size=(3, 400)).astype(np.float32)
    y, solution = jax.device_get(topk_solution(x, 28, lam=1.0, solver=Dykstra(max_iter=10, tol=0.0)))
    assert solution.iterations.tolist() == [10, 10, 10]
    assert not solution.converged.any()
    assert np.all(solution.residual > 0.1)
    np.testing.assert_allclose(y.sum(-1), np.full(3, 28), rtol=1e-5)  # projections keep the mean
    assert np.abs(y - oracles.by_rows(oracles.pooled, x, 28, 1.0)).max() > 0.1


def test_exponentials_that_only_rounding_ties_and_that_vanish():
    """Entries selected in full move alone, and a pull of 1e-4 is found that a push of exp(-1e11) does not balance."""
    x = np.float32([[-1.6819241e-6, -2.7844576e-6, -np.inf], [2.87e22, -1.7e23, -5.8e23], [1, -np.inf, -np.inf]])
    k, lam = np.float32([2, 2, 1]), np.float32([6416.786, 3.56e26, 0.1])
    cotangent = np.float32([[0.75, 1.75, 1], [1, 1, 1], [1, 2, 3]])
    pav = jax.device_get(oracles.with_gradients(relaxed_topk, phi="exp", p=1.99, solver="pav")(x, k, lam, cotangent))
    expected = oracles.differentiated(x, k, lam, 1.99, "exp", cotangent=cotangent)
    for found, wanted in zip(pav, expected.values(), strict=True):
        known = ~np.isnan(wanted)
        np.testing.assert_allclose(found.reshape(wanted.shape)[known], wanted[known], rtol=1e-5)
    assert pav[0][1, 0] > 7e-5
