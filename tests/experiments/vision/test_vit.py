"""The network against NumPy, the same network computed in other ways, and its parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from experiments.core.errors import UsageError
from experiments.vision import vit
from tests.experiments.vision import numpy_vit, synthetic

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(2, 8, 12, 3)).astype(np.float32)  # not square: rows and columns differ


@functools.cache
def network(**options):
    return vit.make("mu/4", 5, **({"depth": 2} | options))


def shapes(model, images=IMAGES):
    return jax.eval_shape(model.init, jax.random.key(0), images)["params"]


def random_params(model, images=IMAGES):
    """Every parameter random, biases and the head too, so that each one matters."""
    rng = np.random.default_rng(1)
    scale = {"scale": 1.0, "kernel": 0.2, "bias": 0.3}
    return {
        name: (rng.normal(size=leaf.shape) * scale.get(name.rpartition("/")[2], 0.5)).astype(np.float32)
        for name, leaf in flatten_dict(shapes(model, images), sep="/").items()
    }


def tree(flat):
    return unflatten_dict(flat, sep="/")


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("options", [{}, {"pool": "gap", "rep_size": 7}])
def test_forward_is_that_of_numpy(options):
    params = random_params(network(**options))
    expected = numpy_vit.forward(params, IMAGES)
    inputs = [(network(**options, dtype=jnp.float64), tree(params))]
    inputs.append((inputs[0][0].clone(scan=True), tree(synthetic.stacked(params, 2))))
    for model, tree_of_params in inputs:
        with jax.numpy_dtype_promotion("standard"):  # Flax's LayerNorm has float64 parameters in mind
            logits = jax.jit(model.apply)({"params": tree_of_params}, IMAGES)
        assert logits.dtype == jnp.float64
        # Parameters are in float32, the computation is not.
        np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)
    assert np.ptp(expected, axis=0).min() > 0.01  # not all alike


def test_scan_and_remat_change_neither_logits_nor_gradients_and_bfloat16_little():
    """On half a picture: nearly all the time is compilation, of products no larger than they need be."""
    params = random_params(network(depth=1), IMAGES[:1, :, :8])
    forms = {"plain": {}, "scanned": {"scan": True, "remat": True}, "half": {"dtype": jnp.bfloat16}}

    @jax.jit
    def losses_and_gradients(params):
        def loss(params, model):
            logits = model.apply({"params": params}, IMAGES[:1, :, :8])
            return jnp.square(logits).sum(), logits

        value_and_grad = jax.value_and_grad(loss, has_aux=True)
        return {name: value_and_grad(params[name], network(depth=1, **form)) for name, form in forms.items()}

    stacked = tree(synthetic.stacked(params, 1))
    found = losses_and_gradients({"plain": tree(params), "scanned": stacked, "half": tree(params)})
    (_, expected), gradient = found["plain"]
    stacked = synthetic.stacked(flatten_dict(gradient, sep="/"), 1)
    (_, logits), other = found["scanned"]
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    other = flatten_dict(other, sep="/")
    assert other.keys() == stacked.keys()
    largest = max(np.abs(leaf).max() for leaf in stacked.values())
    for name, leaf in stacked.items():
        np.testing.assert_allclose(other[name], leaf, rtol=1e-4, atol=1e-6 * largest)

    (_, logits), half = found["half"]
    assert logits.dtype == jnp.float32
    assert 1e-4 < np.abs(logits - expected).max() / np.abs(expected).max() < 0.02
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(half))
    squares = lambda tree: sum(float(np.square(leaf).sum()) for leaf in jax.tree.leaves(tree))  # noqa: E731
    assert squares(jax.tree.map(np.subtract, half, gradient)) < 0.05**2 * squares(gradient)


def test_a_fresh_network_has_a_head_of_zeros_and_glorots_kernels():
    """Names and shapes are those of files in test_pretrained.py."""
    params = jax.jit(network(depth=1, head_bias=-2.0).init)(jax.random.key(0), IMAGES)["params"]
    params = flatten_dict(params, sep="/")
    assert {leaf.dtype for leaf in params.values()} == {np.dtype(np.float32)}
    for name, value in {"head/kernel": 0, "head/bias": -2, "cls": 0}.items():
        np.testing.assert_array_equal(params[name], value)
    for name in ("query", "out"):  # a uniform distribution, with all heads as one matrix
        kernel = params[f"Transformer/encoderblock_0/MultiHeadDotProductAttention_0/{name}/kernel"]
        assert 0.95 < np.abs(kernel).max() / np.sqrt(6 / (32 + 32)) <= 1
    assert np.std(params["pos_embedding"]) == pytest.approx(1 / np.sqrt(32), rel=0.2)


def count(variant, image_size, **options):
    images = np.zeros((1, image_size, image_size, 3), np.float32)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes(vit.make(variant, 1000, **options), images)))


def test_number_of_parameters():
    """At 224 pixels and 1000 classes: the published ones, less the class token's position."""
    assert count("Ti/16", 224) == 5_717_416 - 192
    assert count("S/16", 224, scan=True) == 22_050_664 - 384
    assert count("L/16", 224, scan=True) == 304_326_632 - 1024
    assert count("B/16", 384, scan=True, pool="gap") == 86_566_888 + (24**2 - 14**2) * 768 - 768


class Noisy(nn.Module):
    """Does what a mixture of experts wants to: metrics, a loss of its own, and random numbers."""

    @nn.compact
    def __call__(self, x):
        assert x.dtype == jnp.float32
        factor = self.param("factor", nn.initializers.constant(2.0), ())
        self.sow("intermediates", "mean", x.mean())
        self.sow("losses", "size", jnp.square(factor))
        noise = jax.random.normal(self.make_rng("noise"), x.shape) if self.has_rng("noise") else 0.0
        return x * factor + noise


def test_another_mlp_in_one_block():
    model = network(
        make_mlp=lambda block: Noisy(name="Expert") if block == 1 else vit.MlpBlock(128, jnp.bfloat16),
        dtype=jnp.bfloat16,
        remat=True,
    )
    params = jax.eval_shape(model.init, jax.random.key(0), IMAGES)["params"]
    around = {"LayerNorm_0", "LayerNorm_1", "MultiHeadDotProductAttention_0"}
    assert set(params["Transformer"]["encoderblock_0"]) == around | {"MlpBlock_0"}
    assert set(params["Transformer"]["encoderblock_1"]) == around | {"Expert"}
    params = tree(random_params(model))
    params["Transformer"]["encoderblock_1"]["Expert"]["factor"] = np.float32(3.0)

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def gradient(params, rngs):
        logits, state = model.apply({"params": params}, IMAGES, rngs=rngs, mutable=["intermediates", "losses"])
        return jnp.sum(jnp.stack(jax.tree.leaves(state["losses"]))), (logits, state)

    found, (logits, state) = gradient(params, {"noise": jax.random.key(1)})
    assert (logits.shape, logits.dtype) == ((2, 5), jnp.float32)
    sown = state["intermediates"]["Transformer"]["encoderblock_1"]["Expert"]
    assert [value.shape for value in sown["mean"]] == [()]
    assert found["Transformer"]["encoderblock_1"]["Expert"]["factor"] == 6.0  # of the loss that was sown
    again, other = (gradient(params, {"noise": jax.random.key(seed)})[1][0] for seed in (1, 2))
    np.testing.assert_array_equal(logits, again)
    assert np.abs(logits - other).max() > 1e-3


def test_what_cannot_be_computed_is_named():
    for options, message in (
        ({"patch_size": 5}, r"images .* patch size 5, got \(2, 8, 12, 3\)"),
        ({"pool": "map"}, "pool must be one of tok, gap, got 'map'"),
        ({"scan": True, "make_mlp": lambda block: Noisy()}, "scan .* make_mlp"),
    ):
        with pytest.raises(ValueError, match=message):
            shapes(vit.make("mu/4", 5, **options))
    for variant in ("B", "B/", "B/0", "X/16", "B-16", "B/16/2"):
        with pytest.raises(UsageError, match=f"'{variant}' is not one of SIZE/PATCH"):
            vit.make(variant, 10)
