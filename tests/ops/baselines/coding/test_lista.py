"""LISTA is ISTA before it learns, and closer to the exact codes after."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ops.baselines.coding import Lista, curvature_bound, sparse_code
from tests.ops import oracles

D = oracles.samples((8, 14), dtype=np.float32)
X = oracles.samples((64, 8), 1, np.float32)
LAM = 0.8


def test_starts_as_that_many_steps_of_ista(x64):
    layers = 4
    x, dictionary = X.astype(np.float64), D.astype(np.float64)

    @jax.jit
    def coded(x, dictionary):
        model = Lista(dictionary, LAM, layers)
        return model(model.init(jnp.float64), x)

    codes = coded(x, dictionary)
    ista = sparse_code(x, dictionary, LAM, solver="ista", tol=0, max_iter=layers)
    assert np.all(ista.iterations == layers)
    np.testing.assert_allclose(codes, ista.code, atol=1e-14)


def test_training_halves_the_code_error():
    shrinkage = "sigshrink"
    exact = sparse_code(X, D, LAM)
    assert np.all(exact.converged)
    optimizer = optax.adam(1e-2)

    @jax.jit
    def learned(dictionary):
        """Parameters and their gradients before, and losses on the way."""
        model = Lista(dictionary, LAM, layers=3, shrinkage=shrinkage)

        def loss(params):
            return jnp.mean(jnp.sum(jnp.square(model(params, X) - exact.code), axis=-1))

        def update(carry, _):
            params, state = carry
            value, gradient = jax.value_and_grad(loss)(params)
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(params, updates), state), (value, gradient)

        params = model.init()
        _, (losses, gradients) = jax.lax.scan(update, (params, optimizer.init(params)), length=60)
        return params, jax.tree.map(lambda leaf: leaf[0], gradients), losses

    with jax.numpy_dtype_promotion("standard"):  # Adam's count of steps is an integer
        params, gradient, losses = jax.device_get(learned(D))
    assert losses[-1] < 0.5 * losses[0]
    # What is learned, and that all of it is.
    shapes = {"encoder": (8, 14), "lateral": (14, 14), "threshold": (14,)}
    assert {name: leaf.shape for name, leaf in params.items()} == shapes
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient))


def test_sharp_sigshrink_does_not_shrink():
    @jax.jit
    def codes_and_bound(dictionary):
        models = [Lista(dictionary, LAM, 1, shrinkage, sharpness=1e6) for shrinkage in ("soft", "sigshrink")]
        return [model(model.init(), X) for model in models], curvature_bound(dictionary)

    (soft, sharp), bound = jax.device_get(codes_and_bound(D))
    threshold = LAM / bound
    np.testing.assert_allclose(sharp, soft + threshold * np.sign(soft), atol=1e-6)


def test_codes_keep_the_input_dtype():
    model = Lista(D, LAM, 2)
    assert jax.eval_shape(lambda x: model(model.init(), x), X.astype(jnp.bfloat16)).dtype == jnp.bfloat16
