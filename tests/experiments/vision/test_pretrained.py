"""Files in each public layout, at a full size and at a small one, and files that do not fit."""

import functools
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from scipy import ndimage

from experiments.cifar100_vit import synthetic
from experiments.core.errors import UsageError
from experiments.vision import vit
from experiments.vision.pretrained import load_pretrained, resize_positions
from tests.experiments.vision import numpy_vit

POOL = np.random.default_rng(0).normal(size=999_983).astype(np.float16)  # a prime: no two rows are alike


def values(shape, name):
    """Different in every parameter and, wherever transposed, in another order; cheap at full size."""
    start = sum(name.encode()) % 9973
    return np.resize(np.roll(POOL, -start), shape)


def make_file(layout, variant="mu/4", **options):
    """What a file holds; by default of `MU`, for images of 12 pixels."""
    options = (MU if variant == "mu/4" else {}) | options
    return {name: values(shape, name) for name, shape in synthetic.shapes(layout, variant, **options).items()}


MU = {"depth": 2, "image_size": 12, "num_classes": 7}

OUR_NAMES = {
    "Transformer/posembed_input/pos_embedding": "pos_embedding",
    "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
    "LayerNorm_2": "LayerNorm_1",
    "MlpBlock_3": "MlpBlock_0",
}


def in_our_layout(file):
    """The parameters in an original or augreg file, but for pre_logits."""
    params = {}
    for name, array in without(file, "pre_logits").items():
        for theirs, ours in OUR_NAMES.items():
            name = name.replace(theirs, ours)
        params[name] = array
    positions = params["pos_embedding"].astype(np.float32)
    return params | {"cls": params["cls"].astype(np.float32) + positions[:, :1], "pos_embedding": positions[:, 1:]}


def stacked(params, depth):
    """The same with scanned blocks."""
    first = [name for name in params if "/encoderblock_0/" in name]
    blocks = {
        name.replace("_0/", "/", 1): np.stack([params[name.replace("_0/", f"_{i}/", 1)] for i in range(depth)])
        for name in first
    }
    return without(params, "/encoderblock_") | blocks


def without(arrays, *parts):
    return {name: array for name, array in arrays.items() if not any(part in name for part in parts)}


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


def saved(path, arrays):
    np.savez(path, **arrays)
    return path


def test_names_and_shapes_are_those_of_the_public_files():
    """Spot checks: of ViT-B_16.npz, and of big_vision's checkpoints."""
    file = synthetic.shapes("original", "B/16")
    block = "Transformer/encoderblock_11"
    for name, shape in {
        "cls": (1, 1, 768),
        "embedding/kernel": (16, 16, 3, 768),
        "Transformer/posembed_input/pos_embedding": (1, 197, 768),
        "Transformer/encoderblock_0/LayerNorm_0/scale": (768,),
        f"{block}/MultiHeadDotProductAttention_1/query/kernel": (768, 12, 64),
        f"{block}/MultiHeadDotProductAttention_1/key/bias": (12, 64),
        f"{block}/MultiHeadDotProductAttention_1/out/kernel": (12, 64, 768),
        f"{block}/LayerNorm_2/bias": (768,),
        f"{block}/MlpBlock_3/Dense_0/kernel": (768, 3072),
        f"{block}/MlpBlock_3/Dense_1/bias": (768,),
        "Transformer/encoder_norm/scale": (768,),
        "pre_logits/kernel": (768, 768),
        "head/kernel": (768, 21843),
    }.items():
        assert (name, file.pop(name)) == (name, shape)
    assert len(file) == 12 * 16 + 4 + 2 + 2 + 2 - 13  # 16 arrays in a block; 4 of the input, 2 each of the rest
    augreg = synthetic.shapes("augreg", "B/16")
    assert len(augreg) == 12 * 16 + 4 + 2 + 2
    assert not any("pre_logits" in name for name in augreg)
    scanned = synthetic.shapes("big_vision", "B/16", scan=True, prefix="params/")
    assert len(scanned) == 16 + 4 + 2 + 2
    assert scanned["params/pos_embedding"] == (1, 196, 768)
    assert scanned["params/Transformer/encoderblock/MultiHeadDotProductAttention_0/value/bias"] == (12, 12, 64)
    assert scanned["params/Transformer/encoderblock/MlpBlock_0/Dense_1/kernel"] == (12, 3072, 768)


def test_the_original_b_16_for_384_pixels(tmp_path):
    file = make_file("original", "B/16")
    path = saved(tmp_path / "ViT-B_16.npz", file)
    loaded = load_pretrained(path, fresh("B/16", 384))
    path.unlink()
    expected = in_our_layout(file) | HEAD
    grid = expected["pos_embedding"].reshape(14, 14, 768)
    expected["pos_embedding"] = ndimage.zoom(grid, (24 / 14, 24 / 14, 1), order=1).reshape(1, 576, 768)
    assert_loaded(loaded, fresh("B/16", 384), expected)


def test_the_augreg_ti_16_for_224_pixels_and_scanned_blocks(tmp_path):
    file = make_file("augreg", "Ti/16", num_classes=1000)
    path = saved(tmp_path / "Ti_16-i21k.npz", file)
    params = fresh("Ti/16", 224, scan=True)
    loaded = load_pretrained(path, params)
    path.unlink()
    assert_loaded(loaded, params, stacked(in_our_layout(file), 12) | HEAD)


def test_the_big_vision_ti_16_of_scanned_blocks(tmp_path):
    file = make_file("big_vision", "Ti/16", num_classes=1000, scan=True, prefix="params/")
    moments = {"opt/0/mu/cls": np.zeros(3), "chrono/steps": np.int64(7)}
    path = saved(tmp_path / "checkpoint.npz", file | moments)
    params = fresh("Ti/16", 224, num_classes=1000)
    loaded = load_pretrained(path, params, keep_head=True)
    path.unlink()
    file = {name.removeprefix("params/"): array for name, array in file.items()}
    for name in [name for name in file if "/encoderblock/" in name]:
        for number, array in enumerate(file.pop(name)):
            file[name.replace("/encoderblock/", f"/encoderblock_{number}/")] = array
    assert_loaded(loaded, params, file)


def small(**options):
    return fresh("mu/4", 12, **({"num_classes": 7, "depth": 2} | options))


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("pool", ["tok", "gap"])
def test_every_layout_fits_every_network_but_one_with_a_class_token_that_it_lacks(tmp_path, pool, scan):
    augreg = make_file("augreg")
    ours = in_our_layout(augreg)
    averaged = without(ours, "cls")
    files = {
        "augreg": augreg,
        "original": make_file("original"),
        "big_vision": ours,
        "scanned": stacked(ours, 2),
        "checkpoint": {f"params/{name}": array for name, array in ours.items()} | {"opt/x": np.zeros(2)},
        "flax_optimizer": {f"opt/target/{name}": array for name, array in ours.items()} | {"opt/state": np.zeros(2)},
        "averaged": averaged,
        "averaged_scanned": stacked(averaged, 2),
    }
    params = small(pool=pool, scan=scan)
    expected = (ours if pool == "tok" else averaged) | HEAD
    expected = stacked(expected, 2) if scan else expected
    for name, file in files.items():
        path = saved(tmp_path / f"{name}.npz", file)
        if pool == "tok" and "averaged" in name:
            with pytest.raises(UsageError, match=r"\.npz \(a file in the big_vision layout\) .* it lacks cls$"):
                load_pretrained(path, params)
        else:
            assert_loaded(load_pretrained(path, params), params, dict(expected))


def test_what_is_loaded_computes_what_the_file_does(tmp_path):
    """With the file's own head, and against NumPy."""
    images = np.random.default_rng(0).normal(size=(2, 12, 12, 3)).astype(np.float32)
    original = make_file("original")
    representation = {name: array for name, array in original.items() if name.startswith("pre_logits/")}
    for file, options in (
        (make_file("augreg"), {"scan": True}),
        (original, {"rep_size": 32}),
    ):
        params = in_our_layout(file) | (representation if "rep_size" in options else {})
        expected = numpy_vit.forward(params, images)
        loaded = load_pretrained(saved(tmp_path / "x.npz", file), small(**options), keep_head=True)
        model = vit.make("mu/4", 7, depth=2, **options)
        np.testing.assert_allclose(jax.jit(model.apply)({"params": loaded}, images), expected, rtol=1e-4, atol=1e-4)


def test_pre_logits_are_taken_where_there_are_any(tmp_path):
    file = make_file("original")
    params = small(rep_size=32)
    expected = in_our_layout(file) | HEAD
    expected |= {name: file[name] for name in ("pre_logits/kernel", "pre_logits/bias")}
    assert_loaded(load_pretrained(saved(tmp_path / "x.npz", file), params), params, expected)
    with pytest.raises(UsageError, match=r"augreg layout.* it lacks pre_logits/bias, pre_logits/kernel$"):
        load_pretrained(saved(tmp_path / "y.npz", make_file("augreg")), params)


def test_a_head_is_not_kept_without_what_was_in_front_of_it(tmp_path):
    path = saved(tmp_path / "x.npz", make_file("original"))
    with pytest.raises(UsageError, match=r"head cannot be kept without its pre_logits/bias, pre_logits/kernel$"):
        load_pretrained(path, small(), keep_head=True)
    path = saved(tmp_path / "y.npz", make_file("augreg"))
    with pytest.raises(UsageError, match=r"head cannot be kept without its cls$"):
        load_pretrained(path, small(pool="gap"), keep_head=True)


def test_a_head_that_is_not_in_the_file_must_be_an_array(tmp_path):
    path = saved(tmp_path / "x.npz", make_file("augreg"))
    params = small() | {"head": jax.eval_shape(lambda: small()["head"])}
    with pytest.raises(ValueError, match=r"params must hold an array for head/bias"):
        load_pretrained(path, params)


def test_a_synthetic_file_is_loaded_and_trains(tmp_path):
    """Written in half precision and loaded in float32; logits that vary, and gradients of the usual size."""
    path = synthetic.write(
        tmp_path / "x.npz", "big_vision", "mu/4", depth=2, image_size=8, num_classes=7, scan=True, dtype=np.float16
    )
    model = vit.make("mu/4", 7, depth=2)
    images = np.random.default_rng(0).uniform(-1, 1, size=(4, 12, 12, 3)).astype(np.float32)
    params = load_pretrained(path, small(), keep_head=True)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    for name, leaf in flatten_dict(params, sep="/").items():
        assert np.std(leaf) > 1e-3, name

    def loss(params):
        logits = model.apply({"params": params}, images)
        return jnp.square(logits).mean(), logits

    gradient, logits = jax.jit(jax.grad(loss, has_aux=True))(params)
    assert 0.3 < np.std(logits) < 3
    assert np.std(logits, axis=0).min() > 0.01
    norms = {name: np.linalg.norm(leaf) for name, leaf in flatten_dict(gradient, sep="/").items()}
    assert all(np.isfinite(norm) and norm < 10 for norm in norms.values())
    again = synthetic.write(tmp_path / "y.npz", "augreg", "mu/4", seed=1, depth=2, image_size=12, num_classes=7)
    with np.load(again) as file:
        assert {file[name].dtype for name in file.files} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("bit", "B/16"), {}, "layout 'bit' is not one of original, augreg, big_vision"),
        (("augreg", "B/16"), {"scan": True}, "augreg layout has a class token, and its blocks are not scanned"),
        (("original", "B/16"), {"pool": "gap"}, "original layout has a class token"),
        (("augreg", "B/16"), {"image_size": 100}, "image_size 100 is not a multiple of the patch size 16"),
    ],
)
def test_there_is_no_synthetic_file_of_an_unknown_form(arguments, options, message):
    with pytest.raises(UsageError, match=message):
        synthetic.shapes(*arguments, **options)


def test_types_and_shardings_are_those_of_the_parameters(tmp_path):
    ours = in_our_layout(make_file("augreg"))
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


POSITIONS = "Transformer/posembed_input/pos_embedding"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda file: without(file, "MlpBlock_3"),
            r"it lacks Transformer/encoderblock_0/MlpBlock_0/Dense_0/bias, .*Dense_1/kernel, \.\.\. \(8 in all\)$",
        ),
        (lambda file: file | {"extra/kernel": np.zeros(2)}, r"the network has no extra/kernel$"),
        (
            lambda file: make_file("augreg", "mu/8", depth=2, image_size=24, num_classes=7),
            r"are embedding/kernel \(8, 8, 3, 32\) \(4, 4, 3, 32\)$",
        ),
        (
            lambda file: make_file("augreg", "Ti/4", depth=2, image_size=12, num_classes=7),
            r"are .*\(192,\) \(32,\).* \(\d\d in all\)$",
        ),
        (lambda file: make_file("augreg", depth=3), r"the network has no Transformer/encoderblock_2/.* \(16 in all\)$"),
        (lambda file: file | {POSITIONS: np.zeros((1, 11, 32))}, r"are pos_embedding \(1, 11, 32\) \(1, 9, 32\)$"),
        (lambda file: without(file, "posembed_input"), r"no vision transformer .* are Transformer/.* \(39 in all\)$"),
        (lambda file: {"a": np.zeros(2), "b": np.zeros(2)}, r"no vision transformer .* are a, b$"),
        (lambda file: file | {"cls": np.zeros((1, 1, 32), np.int32)}, r"cannot be read .*: cls is of type int32$"),
        (
            lambda file: file | {"cls": np.full((1, 1, 32), np.nan)},
            r"cannot .*: cls is not finite in 32 of 32 entries$",
        ),
        (lambda file: file | {"cls": np.array([None])}, r"cannot be read .*: Object arrays"),
        (lambda file: file | {"cls": np.zeros((1, 1, 2))}, r"are cls \(1, 1, 2\) \(1, 1, 32\), pos_embedding"),
    ],
)
def test_a_file_that_does_not_fit(tmp_path, change, message):
    path = tmp_path / "x.npz"
    np.savez(path, allow_pickle=True, **change(make_file("augreg")))
    with pytest.raises(UsageError, match=message) as error:
        load_pretrained(path, small())
    assert str(error.value).startswith(f"{path} ")


def test_a_head_that_is_to_be_kept_must_fit(tmp_path):
    path = saved(tmp_path / "x.npz", make_file("augreg"))
    with pytest.raises(UsageError, match=r"are head/bias \(7,\) \(3,\), head/kernel \(32, 7\) \(32, 3\)$"):
        load_pretrained(path, small(num_classes=3), keep_head=True)
    headless = saved(tmp_path / "y.npz", without(make_file("augreg"), "head"))
    with pytest.raises(UsageError, match=r"it lacks head/bias, head/kernel$"):
        load_pretrained(headless, small(), keep_head=True)
    load_pretrained(headless, small())


def test_blocks_that_differ_cannot_be_scanned(tmp_path):
    file = make_file("augreg")
    file["Transformer/encoderblock_1/LayerNorm_0/bias"] = np.zeros(5)
    path = saved(tmp_path / "x.npz", file)
    with pytest.raises(UsageError, match=r"LayerNorm_0/bias of shapes \(32,\), \(5,\) cannot be scanned"):
        load_pretrained(path, small(scan=True))


def test_a_block_that_is_missing_is_named_though_the_others_would_fill_the_network(tmp_path):
    path = saved(tmp_path / "x.npz", without(make_file("augreg", depth=3), "encoderblock_1"))
    with pytest.raises(UsageError, match=r"there is no Transformer/encoderblock_1/LayerNorm_0/"):
        load_pretrained(path, small(scan=True))


def test_integers_that_are_no_parameters_are_left_out(tmp_path):
    file = make_file("augreg")
    plain, counted = (saved(tmp_path / name, file | more) for name, more in (("x.npz", {}), ("y.npz", COUNTS)))
    jax.tree.map(np.testing.assert_array_equal, load_pretrained(plain, small()), load_pretrained(counted, small()))


COUNTS = {"step": np.int64(3), "optimizer/count": np.int32(3), "labels": np.arange(7)}


def test_files_that_are_not_of_arrays(tmp_path):
    def rejected(name, message):
        with pytest.raises(UsageError, match=message):
            load_pretrained(tmp_path / name, small())

    rejected("nothing.npz", "is not a file")
    (tmp_path / "text.npz").write_text("no weights")
    rejected("text.npz", "cannot be read .*: File is not a zip file")
    np.save(tmp_path / "one.npy", np.zeros(3))
    rejected("one.npy", "cannot be read")
    whole = saved(tmp_path / "whole.npz", make_file("augreg")).read_bytes()
    (tmp_path / "part.npz").write_bytes(whole[: len(whole) // 2])
    rejected("part.npz", "cannot be read")
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    (tmp_path / "damaged.npz").write_bytes(damaged)
    rejected("damaged.npz", "cannot be read .*CRC")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as file:
        file.writestr("readme.txt", "no weights")
    rejected("other.npz", r"cannot be read .*: readme\.txt is not an array")
