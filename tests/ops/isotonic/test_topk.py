"""The top-k operators by isotonic optimisation against the oracle; random problems are tried with PAV, too."""

import jax
import numpy as np
import pytest

from ops import topk_mask
from ops.isotonic import Dual, Dykstra, topk_solution
from tests.ops import oracles
from tests.ops.isotonic.certificate import adversarial


def test_pav_on_long_float32_vectors():
    x = np.float32(adversarial(1_000)[[0, 1, 3, 7]])
    k, lam = np.float32([100, 100, 250, 30]), np.float32([1.0, 0.1, 10.0, 0.01])
    found = topk_mask(x, k, lam=lam, p=4 / 3, solver="pav")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, oracles.differentiated(x, k, lam, 4 / 3)["value"], atol=2e-5)


@pytest.mark.usefixtures("x64")
def test_iterative_solvers_agree_with_oracle():
    x, k, lam = adversarial(24)[[0, 1, 4, 6]], np.array([3.0, 5.5, 8.3, 12.0]), np.array([0.1, 0.3, 0.37, 0.2])
    cotangent = np.random.default_rng(5).normal(size=x.shape)

    def loss(x, k, lam):
        y, solution = topk_solution(x, k, lam=lam, solver=Dykstra(20_000))
        return (y * cotangent).sum(), (y, solution.converged)

    (_, (y, converged)), gradients = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(x, k, lam)
    assert converged.all()
    expected = oracles.differentiated(x, k, lam, cotangent=cotangent)
    np.testing.assert_allclose(y, expected["value"], atol=1e-10)
    for name, found in zip(("x", "k", "lam"), gradients, strict=True):
        np.testing.assert_allclose(found.reshape(expected[name].shape), expected[name], rtol=1e-6, atol=1e-7)

    y, solution = topk_solution(x, k, phi="half_square", lam=lam, p=1.5, solver=Dual(20_000))
    assert solution.converged.all()
    np.testing.assert_allclose(y, oracles.differentiated(x, k, lam, 1.5, "mag")["value"], atol=1e-9)


def test_dykstra_reports_an_early_stop():
    x = np.random.default_rng(0).normal(size=(3, 400)).astype(np.float32)
    y, solution = jax.device_get(topk_solution(x, 28, lam=1.0, solver=Dykstra(max_iter=10, tol=0.0)))
    assert solution.iterations.tolist() == [10, 10, 10]
    assert not solution.converged.any()
    assert np.all(solution.residual > 0.1)
    np.testing.assert_allclose(y.sum(-1), np.full(3, 28), rtol=1e-5)  # projections keep the mean
    assert np.abs(y - oracles.by_rows(oracles.pooled, x, 28, 1.0)).max() > 0.1
