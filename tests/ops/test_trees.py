"""A vector split over eight devices gives what one device gives, and only scalars travel."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from ops import hard_topk_mag, hard_topk_mask, topk_mag, topk_mask
from tests.ops import oracles

X = oracles.samples((4, 64), dtype=np.float32)
WEIGHTS = oracles.samples((4, 64), 1, np.float32)


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(jax.devices("cpu")[:8]), ("model",))


@pytest.fixture(scope="module")
def square():
    return Mesh(np.array(jax.devices("cpu")[:8]).reshape(2, 4), ("data", "model"))


def split(mesh, function, spec):
    return jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec)


MASK, MAGNITUDES = functools.partial(topk_mask, k=5.5, lam=0.5), functools.partial(topk_mag, k=5.5, lam=0.5, p=4 / 3)


@pytest.mark.parametrize(
    ("operator", "spec"),
    [
        (MASK, PartitionSpec(None, ("data", "model"))),
        (MAGNITUDES, PartitionSpec(None, "model")),
    ],
)
def test_values_and_gradients(square, operator, spec):
    """Rows over one axis or two, and beside other rows; the first device holds entries that are all absent."""
    x = X.copy()
    x[:, :16] = -np.inf if operator is MASK else 0

    def with_gradient(function):
        def loss(x):
            y = function(x)
            return jnp.sum(WEIGHTS * y), y

        gradient, y = jax.jit(jax.grad(loss, has_aux=True))(x)
        return y, gradient

    sharded = split(square, functools.partial(operator, axis_name=spec[1]), spec)
    (y, gradient), (expected, expected_gradient) = with_gradient(sharded), with_gradient(operator)
    np.testing.assert_allclose(y, expected, atol=1e-6)
    assert np.abs(expected_gradient).max() > 0.1
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-5)


def test_hard_with_ties_across_devices(mesh):
    x = np.round(X)
    sharded = split(mesh, functools.partial(hard_topk_mag, k=20, axis_name="model"), PartitionSpec(None, "model"))
    chosen = np.stack([oracles.hard(np.abs(row), 20) for row in x])
    np.testing.assert_array_equal(jax.jit(sharded)(x), chosen * x)


@pytest.mark.parametrize("operator", [MAGNITUDES, functools.partial(hard_topk_mask, k=5)])
def test_only_scalars_travel(mesh, operator):
    sharded = split(mesh, functools.partial(operator, axis_name="model"), PartitionSpec(None, "model"))
    jaxprs = [jax.make_jaxpr(sharded)(X), jax.make_jaxpr(jax.grad(lambda x: jnp.sum(sharded(x) ** 2)))(X)]
    communicating = ("psum", "pmax", "pmin", "all_gather", "all_to_all", "ppermute", "reduce_scatter")
    found = [e for jaxpr in jaxprs for e in oracles.equations(jaxpr) if e.primitive.name.startswith(communicating)]
    assert len(found) >= 4
    assert max(v.aval.size for e in found for v in e.invars) == len(X)


def test_k_is_checked_against_the_whole(mesh):
    spec = PartitionSpec(None, "model")
    whole, too_many = (split(mesh, functools.partial(topk_mask, k=k, axis_name="model"), spec) for k in (64, 65))
    assert jax.eval_shape(whole, X).shape == X.shape
    with pytest.raises(ValueError, match=r"^k .*65"):
        jax.eval_shape(too_many, X)
