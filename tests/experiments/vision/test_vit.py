"""The network against NumPy, the same network computed in other ways, and its parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from experiments.core.errors import UsageError
from experiments.vision import vit
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
    inputs.append((inputs[0][0].clone(scan=True), tree(numpy_vit.stacked(params, 2))))
    for model, tree_of_params in inputs:
        with jax.numpy_dtype_promotion("standard"):  # Flax's LayerNorm has float64 parameters in mind
            logits = jax.jit(model.apply)({"params": tree_of_params}, IMAGES)
        assert logits.dtype == jnp.float64
        # Parameters are in float32, the computation is not.
        np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)
    assert np.ptp(expected, axis=0).min() > 0.01  # not all alike


def test_bfloat16_stays_close_to_float32():
    """On half a picture: nearly all the time is compilation, of products no larger than they need be."""
    images = IMAGES[:1, :, :8]
    params = tree(random_params(network(depth=1), images))

    def loss(params, model):
        logits = model.apply({"params": params}, images)
        return jnp.square(logits).sum(), logits

    forms = {"whole": {}, "half": {"dtype": jnp.bfloat16, "remat": True}}
    value_and_grad = jax.value_and_grad(loss, has_aux=True)
    of_forms = jax.jit(lambda params: {name: value_and_grad(params, network(depth=1, **forms[name])) for name in forms})
    found = of_forms(params)
    ((_, expected), gradient), ((_, logits), half) = found["whole"], found["half"]
    assert logits.dtype == jnp.float32
    assert 1e-4 < np.abs(logits - expected).max() / np.abs(expected).max() < 0.02
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(half))
    squares = lambda tree: sum(float(np.square(leaf).sum()) for leaf in jax.tree.leaves(tree))  # noqa: E731
    assert squares(jax.tree.map(np.subtract, half, gradient)) < 0.05**2 * squares(gradient)


def test_cheap_remat_recomputes_less():
    images = IMAGES[:1, :, :8]
    params = tree(random_params(network(depth=1), images))

    def products(remat):
        loss = lambda params: network(depth=1, remat=remat).apply({"params": params}, images).sum()  # noqa: E731
        return str(jax.make_jaxpr(jax.grad(loss))(params)).count("dot_general")

    assert products("none") < products("cheap") < products("all") == products(True)


def test_fresh_kernels_are_glorot_or_zero():
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
    assert count("S/16", 224, scan=True) == 22_050_664 - 384
    assert count("L/16", 224, scan=True) == 304_326_632 - 1024
    assert count("B/16", 384, scan=True, pool="gap") == 86_566_888 + (24**2 - 14**2) * 768 - 768


def test_what_cannot_be_computed_is_named():
    for options, message in (
        ({"patch_size": 5}, r"images .* patch size 5, got \(2, 8, 12, 3\)"),
        ({"pool": "map"}, "pool must be one of tok, gap, got 'map'"),
        ({"scan": True, "make_mlp": lambda block: vit.MlpBlock(8, jnp.float32)}, "scan .* make_mlp"),
    ):
        with pytest.raises(ValueError, match=message):
            shapes(vit.make("mu/4", 5, **options))
    for variant in ("B", "B/0", "X/16", "B/16/2"):
        with pytest.raises(UsageError, match=f"'{variant}' is not one of SIZE/PATCH"):
            vit.make(variant, 10)


@pytest.mark.parametrize("tokens", [4, 5])
def test_fused_attention_takes_odd_lengths(tokens, monkeypatch):
    """By XLA in the place of cuDNN, which CPUs do not have."""
    attention = jax.nn.dot_product_attention
    monkeypatch.setattr(
        jax.nn, "dot_product_attention", lambda *args, **given: attention(*args, **given | {"implementation": "xla"})
    )
    qkv = RNG.normal(size=(3, 2, tokens, 3, 8)).astype(np.float32)
    cotangent = RNG.normal(size=qkv.shape[1:]).astype(np.float32)

    @jax.jit
    def by_both(qkv, cotangent):
        both = (jax.vjp(vit.ATTENTIONS[name], *qkv) for name in ("cudnn", "xla"))
        return [(value, *pull_back(cotangent)) for value, pull_back in both]

    for ours, theirs in zip(*by_both(qkv, cotangent), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
