"""Runs and channels lie along the inputs and outputs of the layers that libraries make, or as a user names them."""

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import nnx

from ops import NM, Channels, topk_mag_tree
from ops.pruning import Pruner, matching
from tests.ops import oracles

D, H = 16, 2


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(D, (3,))(x)
        x = nn.MultiHeadDotProductAttention(H)(x, x)
        return nn.Dense(8)(x)


# By path, how a leaf becomes a matrix [inputs, outputs]; a convolution has one for each place of its window.
MATRICES = {
    "MultiHeadDotProductAttention_0/query/kernel": lambda w: w.reshape(D, D),
    "torch_conv/weight": lambda w: w.transpose(2, 3, 1, 0),
    "wo/kernel": lambda w: w.reshape(D, D),
}
LAYOUT = {"^wo/": "iio", "^experts/": ".io"}


def weights():
    shapes = jax.eval_shape(Network().init, jax.random.key(0), np.zeros((1, 4, D)))["params"]
    shapes |= {"image_conv": {"kernel": np.zeros((3, 3, 8, 4))}, "torch_linear": {"weight": np.zeros((6, 8))}}
    shapes |= {"torch_conv": {"weight": np.zeros((6, 8, 3, 3))}, "embed": {"weight": np.zeros((12, 6))}}
    shapes |= {"wo": {"kernel": np.zeros((H, D // H, D))}, "experts": {"kernel": np.zeros((3, 8, 4))}}
    return jax.tree.map(lambda leaf: oracles.samples(leaf.shape, 1, np.float32), shapes)


def hardened(pruner):
    """The matrices after the pruner, which is given no other leaf."""
    leaves = jax.tree_util.tree_leaves_with_path(weights())
    found = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    hard = jax.jit(pruner.harden)({path: found[path] for path in MATRICES})
    return {path: as_matrix(np.asarray(hard[path])) for path, as_matrix in MATRICES.items()}


def test_two_of_four_inputs_are_kept():
    for path, matrix in hardened(Pruner(k=2, lam=0.0, groups=NM(4), layout={"^wo/": "iio"})).items():
        *window, inputs, outputs = matrix.shape
        kept = np.count_nonzero(matrix.reshape(*window, inputs // 4, 4, outputs), axis=-2)
        assert (kept == 2).all(), path


def test_channels_are_whole_neurons():
    pruner = Pruner(density=0.5, lam=0.0, per_leaf=True, groups=Channels(), layout={"^wo/": "iio"})
    for path, matrix in hardened(pruner).items():
        kept = (matrix != 0).reshape(-1, matrix.shape[-1])
        assert kept.all(axis=0).sum() == kept.any(axis=0).sum() == matrix.shape[-1] // 2, path


def test_heads_of_nnx_and_axes_by_number():
    attention = nnx.MultiHeadAttention(H, D, rngs=nnx.Rngs(0), decode=False)
    hard = Pruner(k=2, lam=0.0, groups=NM(4), exclude=matching("key/|value/kernel")).harden(attention)
    query, out = np.asarray(hard.query.kernel[...]), np.asarray(hard.out.kernel[...])
    assert (np.count_nonzero(query.reshape(D // 4, 4, D), axis=1) == 2).all()
    assert (np.count_nonzero(out.reshape(D // 4, 4, D), axis=1) == 2).all()
    heads = topk_mag_tree({"query": {"kernel": query}}, k=1, lam=0.0, groups=Channels(1))["query"]["kernel"]
    assert np.any(heads, axis=(0, 2)).sum() == 1


@pytest.mark.parametrize("name", ["DenseGeneral_0", "experts", "mixer"])
def test_unknown_kernel_layout_is_refused(name):
    params = {name: {"kernel": np.ones((4, 4, 8), np.float32)}}
    for groups, axis in ((NM(4), "inputs"), (Channels(), "outputs")):
        with pytest.raises(ValueError, match=rf"'{name}'.* {axis} for {type(groups).__name__}\("):
            Pruner(k=1, lam=0.1, groups=groups)(params)
    Pruner(k=1, lam=0.1, groups=Channels(-1))(params)


def test_layouts_that_do_not_fit_are_named():
    params = {"mixer": {"kernel": np.ones((4, 4, 8), np.float32)}}
    for letters in ("inputs", "ii", "", None):
        with pytest.raises(ValueError, match=rf"^layout .*'i'.*'o'.* got {letters!r} for 'mixer'$"):
            Pruner(k=1, lam=0.1, layout={"mixer": letters})
    with pytest.raises(ValueError, match=r"^layout .* 3 .*'mixer/kernel', got 'io'$"):
        Pruner(k=1, lam=0.1, groups=NM(4), layout={"mixer": "io"})(params)
    with pytest.raises(ValueError, match=r"^layout .*'mixture'"):
        Pruner(k=1, lam=0.1, groups=NM(4), layout={"mixture": "ioo"})(params)


def test_axes_are_described():
    pruner = Pruner(k=2, lam=0.1, groups=NM(4), layout=LAYOUT)
    lines = {line.split()[0]: line for line in pruner.describe(jax.eval_shape(weights)).splitlines()}
    for path, axes in {
        "Conv_0/kernel": "(3, 16 in, 16 out)",
        "Dense_0/kernel": "(16 in, 8 out)",
        "MultiHeadDotProductAttention_0/query/kernel": "(16 in, 2 out, 8 out)",
        "MultiHeadDotProductAttention_0/out/kernel": "(2 in, 8 in, 16 out)",
        "image_conv/kernel": "(3, 3, 8 in, 4 out)",
        "torch_linear/weight": "(6 out, 8 in)",
        "torch_conv/weight": "(6 out, 8 in, 3, 3)",
        "embed/weight": "(12 in, 6 out)",
        "wo/kernel": "(2 in, 8 in, 16 out)",
        "experts/kernel": "(3, 8 in, 4 out)",
    }.items():
        assert axes in lines[path], path
    mixer = {"mixer": {"kernel": jax.ShapeDtypeStruct((4, 4, 8), np.float32)}}
    text = Pruner(k=1, lam=0.1, groups=Channels(-1)).describe(mixer)
    assert "(4, 4, 8)" in text
    assert "axis -1" in text
    assert "refused" in Pruner(k=1, lam=0.1, groups=Channels()).describe(mixer)
