"""Files in each public layout, at full size and at a small one, and files that do not fit."""

import functools
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from scipy import ndimage

from experiments.cifar100_vit import vit
from experiments.cifar100_vit.pretrained import load_pretrained, resize_positions
from experiments.core.errors import UsageError
from tests.experiments.cifar100_vit import numpy_vit

POOL = np.random.default_rng(0).normal(size=999_983).astype(np.float16)  # a prime: no two rows are alike


def values(shape, name):
    """Different in every parameter and, wherever transposed, in another order; cheap at full size."""
    start = sum(name.encode()) % 9973
    return np.resize(np.roll(POOL, -start), shape)


def block_shapes(width, mlp_dim, heads, attention, second_norm, mlp):
    inner = width // heads
    return {
        **{f"{norm}/{part}": (width,) for norm in ("LayerNorm_0", second_norm) for part in ("scale", "bias")},
        **{f"{attention}/{name}/kernel": (width, heads, inner) for name in ("query", "key", "value")},
        **{f"{attention}/{name}/bias": (heads, inner) for name in ("query", "key", "value")},
        f"{attention}/out/kernel": (heads, inner, width),
        f"{attention}/out/bias": (width,),
        f"{mlp}/Dense_0/kernel": (width, mlp_dim),
        f"{mlp}/Dense_0/bias": (mlp_dim,),
        f"{mlp}/Dense_1/kernel": (mlp_dim, width),
        f"{mlp}/Dense_1/bias": (width,),
    }


ORIGINAL = ("MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3")
OURS = ("MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")


def around(width, patch, num_classes):
    return {
        "embedding/kernel": (patch, patch, 3, width),
        "embedding/bias": (width,),
        "cls": (1, 1, width),
        "Transformer/encoder_norm/scale": (width,),
        "Transformer/encoder_norm/bias": (width,),
        "head/kernel": (width, num_classes),
        "head/bias": (num_classes,),
    }


def original(width, depth, mlp_dim, heads, patch, num_patches, num_classes, *, pre_logits):
    """A file as the paper's authors wrote it, or, without `pre_logits`, as those of augreg did."""
    shapes = around(width, patch, num_classes)
    shapes["Transformer/posembed_input/pos_embedding"] = (1, num_patches + 1, width)
    if pre_logits:
        shapes |= {"pre_logits/kernel": (width, width), "pre_logits/bias": (width,)}
    for number in range(depth):
        for name, shape in block_shapes(width, mlp_dim, heads, *ORIGINAL).items():
            shapes[f"Transformer/encoderblock_{number}/{name}"] = shape
    return {name: values(shape, name) for name, shape in shapes.items()}


def big_vision(width, depth, mlp_dim, heads, patch, num_patches, num_classes, *, scan=False):
    shapes = around(width, patch, num_classes)
    shapes["pos_embedding"] = (1, num_patches, width)
    for name, shape in block_shapes(width, mlp_dim, heads, *OURS).items():
        if scan:
            shapes[f"Transformer/encoderblock/{name}"] = (depth, *shape)
        else:
            shapes |= {f"Transformer/encoderblock_{number}/{name}": shape for number in range(depth)}
    return {name: values(shape, name) for name, shape in shapes.items()}


def in_our_layout(file, depth):
    """The parameters of an original file, by a table written out from the two lists of names."""
    positions = file["Transformer/posembed_input/pos_embedding"].astype(np.float32)
    params = {name: file[name] for name in around(1, 1, 1)}
    params |= {"cls": file["cls"].astype(np.float32) + positions[:, :1], "pos_embedding": positions[:, 1:]}
    theirs, ours = block_shapes(1, 1, 1, *ORIGINAL), block_shapes(1, 1, 1, *OURS)
    for number in range(depth):
        for name, our_name in zip(theirs, ours, strict=True):
            block = f"Transformer/encoderblock_{number}"
            params[f"{block}/{our_name}"] = file[f"{block}/{name}"]
    return params


@functools.cache
def fresh(variant, image_size, num_classes=100, **options):
    """Shapes of the body, and a head that is there."""
    model = vit.make(variant, num_classes, **options)
    params = jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, image_size, image_size, 3), np.float32))
    params = params["params"]
    params["head"] = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.5, leaf.dtype), params["head"])
    return params


def assert_loaded(loaded, params, expected):
    """All leaves equal, types and structure too; consumes `expected`."""
    assert jax.tree.structure(loaded) == jax.tree.structure(params)
    for name, leaf in flatten_dict(loaded, sep="/").items():
        assert (leaf.dtype, name) == (np.dtype(np.float32), name)
        np.testing.assert_array_equal(leaf, expected.pop(name), err_msg=name)
    assert not expected


HEAD = {"head/kernel": np.float32(0.5), "head/bias": np.float32(0.5)}
B16 = (768, 12, 3072, 12, 16)


def saved(path, arrays):
    np.savez(path, **arrays)
    return path


def test_the_original_b_16_for_384_pixels(tmp_path):
    file = original(*B16, 14**2, 21843, pre_logits=True)
    path = saved(tmp_path / "ViT-B_16.npz", file)
    loaded = load_pretrained(path, fresh("B/16", 384))
    path.unlink()
    expected = in_our_layout(file, 12) | HEAD
    grid = expected["pos_embedding"].reshape(14, 14, 768)
    expected["pos_embedding"] = ndimage.zoom(grid, (24 / 14, 24 / 14, 1), order=1).reshape(1, 576, 768)
    assert_loaded(loaded, fresh("B/16", 384), expected)


def test_the_augreg_b_16_for_224_pixels_and_scanned_blocks(tmp_path):
    file = original(*B16, 14**2, 1000, pre_logits=False)
    path = saved(tmp_path / "B_16-i21k.npz", file)
    params = fresh("B/16", 224, scan=True)
    loaded = load_pretrained(path, params)
    path.unlink()
    expected = in_our_layout(file, 12) | HEAD
    for name in block_shapes(1, 1, 1, *OURS):
        blocks = [expected.pop(f"Transformer/encoderblock_{number}/{name}") for number in range(12)]
        expected[f"Transformer/encoderblock/{name}"] = np.stack(blocks)
    assert_loaded(loaded, params, expected)


def test_the_big_vision_b_16_of_scanned_blocks(tmp_path):
    file = big_vision(*B16, 14**2, 1000, scan=True)
    moments = {"opt/0/mu/cls": np.zeros(3), "chrono/steps": np.int64(7)}
    path = saved(tmp_path / "checkpoint.npz", {f"params/{name}": array for name, array in file.items()} | moments)
    params = fresh("B/16", 224, num_classes=1000)
    loaded = load_pretrained(path, params, keep_head=True)
    path.unlink()
    for name in block_shapes(1, 1, 1, *OURS):
        for number, array in enumerate(file.pop(f"Transformer/encoderblock/{name}")):
            file[f"Transformer/encoderblock_{number}/{name}"] = array
    assert_loaded(loaded, params, file)


MU = (32, 2, 128, 2, 4)  # with two blocks


def small(**options):
    return fresh("mu/4", 12, **({"num_classes": 7, "depth": 2} | options))


def test_the_same_network_in_every_layout_has_the_same_logits(tmp_path):
    file = original(*MU, 9, 7, pre_logits=False)
    ours = in_our_layout(file, 2)
    files = {
        "augreg": file,
        "original": original(*MU, 9, 7, pre_logits=True),
        "big_vision": ours,
        "checkpoint": {f"params/{name}": array for name, array in ours.items()} | {"opt/x": np.zeros(2)},
        "flax_optimizer": {f"opt/target/{name}": array for name, array in ours.items()} | {"opt/state": np.zeros(2)},
    }
    images = np.random.default_rng(0).normal(size=(2, 12, 12, 3)).astype(np.float32)
    tokens, scanned = small(), small(scan=True)
    forward = {
        scan: jax.jit(
            lambda params, scan=scan: vit.make("mu/4", 7, depth=2, scan=scan).apply({"params": params}, images)
        )
        for scan in (False, True)
    }
    expected = numpy_vit.forward(ours, images)
    for name, arrays in files.items():
        path = saved(tmp_path / f"{name}.npz", arrays)
        for scan, params in ((False, tokens), (True, scanned)):
            found = forward[scan](load_pretrained(path, params, keep_head=True))
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_average_pooling_drops_the_class_token_and_not_the_other_way_round(tmp_path):
    file = original(*MU, 9, 7, pre_logits=True)
    path = saved(tmp_path / "tok.npz", file)
    expected = in_our_layout(file, 2) | HEAD
    del expected["cls"]
    average = small(pool="gap", num_classes=3)
    assert_loaded(load_pretrained(path, average), average, expected)
    ours = in_our_layout(file, 2)
    del ours["cls"]
    with pytest.raises(UsageError, match=r"big_vision layout.* it lacks cls$"):
        load_pretrained(saved(tmp_path / "gap.npz", ours), small())


def test_pre_logits_are_taken_where_there_are_any(tmp_path):
    file = original(*MU, 9, 7, pre_logits=True)
    path = saved(tmp_path / "x.npz", file)
    params = small(rep_size=32)
    expected = in_our_layout(file, 2) | HEAD
    expected |= {name: file[name] for name in ("pre_logits/kernel", "pre_logits/bias")}
    assert_loaded(load_pretrained(path, params), params, expected)


def test_types_and_shardings_are_those_of_the_parameters(tmp_path):
    ours = in_our_layout(original(*MU, 9, 7, pre_logits=False), 2)
    # NumPy writes bfloat16 as two bytes without a meaning.
    half = {name: array.astype(jnp.bfloat16) for name, array in ours.items()}
    path = saved(tmp_path / "half.npz", half)
    mesh = jax.make_mesh((2,), ("x",))
    replicated = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    params = jax.tree.map(lambda leaf: jax.device_put(jnp.zeros(leaf.shape), replicated), small())
    loaded = load_pretrained(path, params)
    for name, leaf in flatten_dict(loaded, sep="/").items():
        assert (leaf.sharding, leaf.dtype) == (replicated, jnp.float32)
        if not name.startswith("head/"):
            np.testing.assert_array_equal(leaf, half[name].astype(np.float32))


def test_resizing_keeps_the_corners_and_halves_the_way_between():
    positions = np.array([[[0.0, 10], [4, 20], [8, 30], [20, 50]]])
    resized = resize_positions(positions, 3)
    assert resized.shape == (1, 9, 2)
    np.testing.assert_allclose(resized[0, :, 0], [0, 2, 4, 4, 8, 12, 8, 14, 20])
    np.testing.assert_allclose(resized[0, :, 1], [10, 15, 20, 20, 27.5, 35, 30, 40, 50])
    with pytest.raises(ValueError, match=r"square grid, got shape \(1, 3, 2\)"):
        resize_positions(positions[:, :3], 2)


def without(arrays, *parts):
    return {name: array for name, array in arrays.items() if not any(part in name for part in parts)}


def mu_file(width=32, depth=2, patch=4, num_patches=9):
    return original(width, depth, 128, 2, patch, num_patches, 7, pre_logits=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda file: without(file, "MlpBlock_3"),
            r"it lacks Transformer/encoderblock_0/MlpBlock_0/Dense_0/bias, .*Dense_1/kernel, \.\.\. \(8 in all\)$",
        ),
        (lambda file: file | {"extra/kernel": np.zeros(2)}, r"the network has no extra/kernel$"),
        (lambda file: mu_file(patch=8), r"are embedding/kernel \(8, 8, 3, 32\) \(4, 4, 3, 32\)$"),
        (lambda file: mu_file(width=64), r"are .*\(64,\) \(32,\).* \(\d\d in all\)$"),
        (lambda file: mu_file(depth=3), r"the network has no Transformer/encoderblock_2/.* \(16 in all\)$"),
        (lambda file: mu_file(num_patches=10), r"are pos_embedding \(1, 11, 32\) \(1, 9, 32\)$"),
        (lambda file: without(file, "posembed_input"), r"no vision transformer .* are Transformer/.* \(39 in all\)$"),
        (lambda file: {"a": np.zeros(2), "b": np.zeros(2)}, r"no vision transformer .* are a, b$"),
        (lambda file: file | {"cls": np.zeros((1, 1, 32), np.int32)}, r"cannot be read .*: cls is of type int32$"),
        (lambda file: file | {"cls": np.array([None])}, r"cannot be read .*: Object arrays"),
        (lambda file: file | {"cls": np.zeros((1, 1, 2))}, r"are cls \(1, 1, 2\) \(1, 1, 32\), pos_embedding"),
    ],
)
def test_a_file_that_does_not_fit(tmp_path, change, message):
    path = tmp_path / "x.npz"
    np.savez(path, allow_pickle=True, **change(original(*MU, 9, 7, pre_logits=False)))
    with pytest.raises(UsageError, match=message) as error:
        load_pretrained(path, small())
    assert str(error.value).startswith(f"{path} ")


def test_a_head_that_is_to_be_kept_must_fit(tmp_path):
    path = saved(tmp_path / "x.npz", original(*MU, 9, 7, pre_logits=False))
    with pytest.raises(UsageError, match=r"are head/bias \(7,\) \(3,\), head/kernel \(32, 7\) \(32, 3\)$"):
        load_pretrained(path, small(num_classes=3), keep_head=True)
    headless = saved(tmp_path / "y.npz", without(original(*MU, 9, 7, pre_logits=False), "head"))
    with pytest.raises(UsageError, match=r"it lacks head/bias, head/kernel$"):
        load_pretrained(headless, small(), keep_head=True)
    load_pretrained(headless, small())


def test_blocks_that_differ_cannot_be_scanned(tmp_path):
    file = original(*MU, 9, 7, pre_logits=False)
    file["Transformer/encoderblock_1/LayerNorm_0/bias"] = np.zeros(5)
    path = saved(tmp_path / "x.npz", file)
    with pytest.raises(UsageError, match=r"LayerNorm_0/bias of shapes \(32,\), \(5,\) cannot be scanned"):
        load_pretrained(path, small(scan=True))


def test_files_that_are_not_of_arrays(tmp_path):
    def rejected(name, message):
        with pytest.raises(UsageError, match=message):
            load_pretrained(tmp_path / name, small())

    rejected("nothing.npz", "is not a file")
    (tmp_path / "text.npz").write_text("no weights")
    rejected("text.npz", "cannot be read .*: File is not a zip file")
    np.save(tmp_path / "one.npy", np.zeros(3))
    rejected("one.npy", "cannot be read")
    whole = saved(tmp_path / "whole.npz", original(*MU, 9, 7, pre_logits=False)).read_bytes()
    (tmp_path / "part.npz").write_bytes(whole[: len(whole) // 2])
    rejected("part.npz", "cannot be read")
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    (tmp_path / "damaged.npz").write_bytes(damaged)
    rejected("damaged.npz", "cannot be read .*CRC")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as file:
        file.writestr("readme.txt", "no weights")
    rejected("other.npz", r"cannot be read .*: readme\.txt is not an array")
