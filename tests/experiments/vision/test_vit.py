"""The network against NumPy, the same network computed in other ways, and its parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from experiments.core.errors import UsageError
from experiments.vision import layouts, vit
from tests.experiments.vision import numpy_vit

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
    inputs.append((inputs[0][0].clone(scan=True), tree(layouts.stack_blocks(params))))
    for model, tree_of_params in inputs:
        with jax.numpy_dtype_promotion("standard"):  # Flax's LayerNorm has float64 parameters in mind
            logits = jax.jit(model.apply)({"params": tree_of_params}, IMAGES)
        assert logits.dtype == jnp.float64
        # Parameters are in float32, the computation is not.
        np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)
    assert np.ptp(expected, axis=0).min() > 0.01  # not all alike


def loss_and_gradient(model, params):
    def loss(params):
        logits = model.apply({"params": params}, IMAGES)
        return jnp.square(logits).sum(), logits

    return jax.jit(jax.value_and_grad(loss, has_aux=True))(params)


def test_scan_and_remat_change_neither_logits_nor_gradients_and_bfloat16_little():
    params = random_params(network())
    (_, expected), gradient = loss_and_gradient(network(), tree(params))
    gradient = flatten_dict(gradient, sep="/")
    stacked = layouts.stack_blocks(gradient)
    largest = max(np.abs(leaf).max() for leaf in gradient.values())
    for options in ({"remat": True}, {"scan": True, "remat": True}):
        scan = "scan" in options
        (_, logits), other = loss_and_gradient(
            network(**options), tree(layouts.stack_blocks(params) if scan else params)
        )
        np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
        other = flatten_dict(other, sep="/")
        assert other.keys() == (stacked if scan else gradient).keys()
        for name, leaf in (stacked if scan else gradient).items():
            np.testing.assert_allclose(other[name], leaf, rtol=1e-4, atol=1e-6 * largest)

    (_, logits), half = loss_and_gradient(network(dtype=jnp.bfloat16), tree(params))
    assert logits.dtype == jnp.float32
    assert 1e-4 < np.abs(logits - expected).max() / np.abs(expected).max() < 0.02
    half = flatten_dict(half, sep="/")
    assert all(leaf.dtype == jnp.float32 for leaf in half.values())
    difference = sum(float(np.square(half[name] - leaf).sum()) for name, leaf in gradient.items())
    assert difference < 0.05**2 * sum(float(np.square(leaf).sum()) for leaf in gradient.values())


def test_a_fresh_network_has_the_names_of_big_vision_and_a_head_of_zeros():
    model = network(depth=1, head_bias=-2.0)
    params = flatten_dict(jax.jit(model.init)(jax.random.key(0), IMAGES)["params"], sep="/")
    block = "Transformer/encoderblock_0"
    assert {name: leaf.shape for name, leaf in params.items()} == {
        "embedding/kernel": (4, 4, 3, 32),
        "embedding/bias": (32,),
        "pos_embedding": (1, 6, 32),
        "cls": (1, 1, 32),
        **{f"{block}/{norm}/{part}": (32,) for norm in ("LayerNorm_0", "LayerNorm_1") for part in ("scale", "bias")},
        **{
            f"{block}/MultiHeadDotProductAttention_0/{name}/{part}": shape
            for name in ("query", "key", "value")
            for part, shape in (("kernel", (32, 2, 16)), ("bias", (2, 16)))
        },
        f"{block}/MultiHeadDotProductAttention_0/out/kernel": (2, 16, 32),
        f"{block}/MultiHeadDotProductAttention_0/out/bias": (32,),
        f"{block}/MlpBlock_0/Dense_0/kernel": (32, 128),
        f"{block}/MlpBlock_0/Dense_0/bias": (128,),
        f"{block}/MlpBlock_0/Dense_1/kernel": (128, 32),
        f"{block}/MlpBlock_0/Dense_1/bias": (32,),
        "Transformer/encoder_norm/scale": (32,),
        "Transformer/encoder_norm/bias": (32,),
        "head/kernel": (32, 5),
        "head/bias": (5,),
    }
    assert {leaf.dtype for leaf in params.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(params["head/kernel"], 0)
    np.testing.assert_array_equal(params["head/bias"], -2)
    np.testing.assert_array_equal(params["cls"], 0)
    # Glorot's uniform distribution, with all heads as one matrix.
    for name, fans in (("query", 32 + 32), ("out", 32 + 32)):
        kernel = params[f"{block}/MultiHeadDotProductAttention_0/{name}/kernel"]
        assert 0.95 < np.abs(kernel).max() / np.sqrt(6 / fans) <= 1
    assert np.std(params["pos_embedding"]) == pytest.approx(1 / np.sqrt(32), rel=0.2)


def count(variant, image_size, **options):
    images = np.zeros((1, image_size, image_size, 3), np.float32)
    leaves = jax.tree.leaves(shapes(vit.make(variant, 1000, **options), images))
    return sum(int(np.prod(leaf.shape)) for leaf in leaves)


def formula(width, depth, mlp_dim, patch, image_size, tok):
    block = 4 * width + 4 * (width**2 + width) + 2 * width * mlp_dim + mlp_dim + width
    embedding = 3 * patch**2 * width + width + (image_size // patch) ** 2 * width + tok * width
    return embedding + depth * block + 2 * width + 1000 * width + 1000


def test_number_of_parameters():
    """At 224 pixels and 1000 classes: the published ones, less the class token's position."""
    assert count("Ti/16", 224) == formula(192, 12, 768, 16, 224, tok=1) == 5_717_416 - 192
    assert count("S/16", 224) == formula(384, 12, 1536, 16, 224, tok=1) == 22_050_664 - 384
    assert count("B/16", 224) == formula(768, 12, 3072, 16, 224, tok=1) == 86_567_656 - 768
    assert count("L/16", 224) == formula(1024, 24, 4096, 16, 224, tok=1) == 304_326_632 - 1024
    assert count("B/16", 384, scan=True) == 86_566_888 + (24**2 - 14**2) * 768
    assert count("L/32", 224, pool="gap") == formula(1024, 24, 4096, 32, 224, tok=0)


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


@pytest.mark.parametrize("remat", [False, True])
def test_another_mlp_in_one_block(remat):
    model = network(
        make_mlp=lambda block: Noisy(name="Expert") if block == 1 else vit.MlpBlock(128, jnp.bfloat16),
        dtype=jnp.bfloat16,
        remat=remat,
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch_size": 5}, r"images .* patch size 5, got \(2, 8, 12, 3\)"),
        ({"pool": "map"}, "pool must be one of tok, gap, got 'map'"),
        ({"scan": True, "make_mlp": lambda block: Noisy()}, "scan .* make_mlp"),
    ],
)
def test_what_cannot_be_computed_is_said(options, message):
    with pytest.raises(ValueError, match=message):
        shapes(vit.make("mu/4", 5, **options))


@pytest.mark.parametrize("variant", ["B", "B/", "B/0", "X/16", "B-16", "B/16/2"])
def test_an_unknown_variant_is_named(variant):
    with pytest.raises(UsageError, match=f"'{variant}' is not one of SIZE/PATCH"):
        vit.make(variant, 10)
