"""LISTA is ISTA before it learns, and closer to the exact codes after."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ops.baselines import Lista, curvature_bound, sparse_code
from tests.ops import oracles

D = jnp.float32(oracles.samples((8, 14)))
X = jnp.float32(oracles.samples((64, 8), 1))
LAM = 0.8


@pytest.mark.parametrize("layers", [1, 4])
def test_starts_as_that_many_steps_of_ista(x64, layers):
    x, dictionary = X.astype(jnp.float64), D.astype(jnp.float64)
    model = Lista(dictionary, LAM, layers)
    codes = jax.jit(model)(model.init(jnp.float64), x)
    ista = sparse_code(x, dictionary, LAM, solver="ista", tolerance=0, max_iterations=layers)
    assert np.all(ista.iterations == layers)
    np.testing.assert_allclose(codes, ista.code, atol=1e-14)


@pytest.mark.parametrize("shrinkage", ["soft", "sigshrink"])
def test_a_few_steps_of_adam_bring_it_closer_to_the_exact_codes(shrinkage):
    exact = sparse_code(X, D, LAM)
    assert np.all(exact.converged)
    model = Lista(D, LAM, layers=3, shrinkage=shrinkage)
    params = model.init()
    optimizer = optax.adam(1e-2)

    def loss(params):
        return jnp.mean(jnp.sum(jnp.square(model(params, X) - exact.code), axis=-1))

    def update(carry, _):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, updates), state), value

    with jax.numpy_dtype_promotion("standard"):  # Adam's count of steps is an integer
        losses = jax.jit(lambda p: jax.lax.scan(update, (p, optimizer.init(p)), length=60))(params)[1]
    assert float(losses[-1]) < 0.5 * float(losses[0])
    # What is learned, and that all of it is.
    shapes = {"encoder": (8, 14), "lateral": (14, 14), "threshold": (14,)}
    assert {name: leaf.shape for name, leaf in params.items()} == shapes
    assert all(float(jnp.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(jax.grad(loss)(params)))


def test_sharp_sigshrink_keeps_what_soft_thresholding_shrinks():
    soft, sharp = (
        model(model.init(), X)
        for model in (Lista(D, LAM, 1, shrinkage, sharpness=1e6) for shrinkage in ("soft", "sigshrink"))
    )
    threshold = LAM / curvature_bound(D)
    np.testing.assert_allclose(sharp, soft + threshold * np.sign(soft), atol=1e-6)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="layers must be at least 1, got 0"):
        Lista(D, LAM, 0)
    with pytest.raises(ValueError, match="shrinkage must be one of 'soft', 'sigshrink', got 'hard'"):
        Lista(D, LAM, 2, "hard")
    model = Lista(D.T, LAM, 2)
    with pytest.raises(ValueError, match=r"x must have the shape \(..., 14\) of the dictionary, got shape \(64, 8\)"):
        model(model.init(), X)
