"""Files in each public layout, by the names and shapes of the full size, and files that do not fit."""

import functools
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from experiments.core.errors import UsageError
from experiments.vision import vit
from experiments.vision.pretrained import load_pretrained, resize_positions
from tests.experiments.vision import synthetic
from tests.experiments.vision.synthetic import stacked, without

MU = {"depth": 2, "image_size": 12, "num_classes": 7}

OUR_NAMES = {
    "Transformer/posembed_input/pos_embedding": "pos_embedding",
    "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
    "LayerNorm_2": "LayerNorm_1",
    "MlpBlock_3": "MlpBlock_0",
}


def make_file(layout, variant="mu/4", **options):
    """The arrays of a file, different in every parameter; by default of two blocks, for images of 12 pixels."""
    rng = np.random.default_rng(0)
    shapes = synthetic.shapes(layout, variant, **MU | options)
    return {name: rng.normal(size=shape).astype(np.float16) for name, shape in shapes.items()}


def in_our_layout(file):
    """The parameters in an original or augreg file, but for pre_logits."""
    params = {}
    for name, array in without(file, "pre_logits").items():
        for theirs, ours in OUR_NAMES.items():
            name = name.replace(theirs, ours)
        params[name] = array
    positions = params["pos_embedding"].astype(np.float32)
    return params | {"cls": params["cls"].astype(np.float32) + positions[:, :1], "pos_embedding": positions[:, 1:]}


@functools.cache
def small(image_size=12, num_classes=7, **options):
    model = vit.make("mu/4", num_classes, **{"depth": 2} | options)
    params = jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, image_size, image_size, 3), np.float32))
    return params["params"]


def refused(path, message, params=None, **options):
    with pytest.raises(UsageError, match=message) as error:
        load_pretrained(path, small() if params is None else params, **options)
    return str(error.value)


def assert_loaded(loaded, params, expected):
    """All leaves but the head equal, types and structure too; consumes `expected`."""
    body = {name: part for name, part in params.items() if name != "head"}
    assert jax.tree.structure(loaded) == jax.tree.structure(body)
    for name, leaf in flatten_dict(loaded, sep="/").items():
        assert (leaf.dtype, name) == (np.dtype(np.float32), name)
        np.testing.assert_array_equal(leaf, expected.pop(name), err_msg=name)
    assert not expected


def saved(path, arrays):
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("pool", ["tok", "gap"])
def test_every_layout_fits_every_network_but_one_with_a_class_token_that_it_lacks(tmp_path, pool, scan):
    augreg = make_file("augreg")
    ours = in_our_layout(augreg)
    averaged = without(ours, "cls")
    original = in_our_layout(make_file("original"))
    files = {
        "augreg": (augreg, ours),
        "original": (make_file("original"), original),
        "big_vision": (ours | COUNTS, ours),  # integers that are no parameters are left out
        "checkpoint": ({f"params/{name}": a for name, a in stacked(ours, 2).items()} | {"opt/x": np.zeros(2)}, ours),
        "flax_optimizer": ({f"opt/target/{name}": a for name, a in ours.items()} | {"opt/state": np.zeros(2)}, ours),
        "averaged": (averaged, None),
        "averaged_scanned": (stacked(averaged, 2), None),
    }
    params = small(pool=pool, scan=scan)
    for name, (file, expected) in files.items():
        path = saved(tmp_path / f"{name}.npz", file)
        if pool == "tok" and expected is None:
            refused(path, r"\.npz \(a file in the big_vision layout\) .* it lacks cls$", params)
            continue
        expected = without(expected if pool == "tok" else without(expected or averaged, "cls"), "head")
        assert_loaded(load_pretrained(path, params), params, stacked(expected, 2) if scan else expected)


COUNTS = {"step": np.int64(3), "optimizer/count": np.int32(3), "labels": np.arange(7)}


def test_positions_are_resized_to_the_grid_of_the_network(tmp_path):
    file = make_file("augreg")
    expected = without(in_our_layout(file), "head")
    expected["pos_embedding"] = resize_positions(expected["pos_embedding"], 6)
    assert_loaded(load_pretrained(saved(tmp_path / "x.npz", file), small(24)), small(24), expected)


def test_pre_logits_are_taken_where_there_are_any_and_the_head_of_the_file_is_not(tmp_path):
    file = make_file("original")
    original, augreg = saved(tmp_path / "x.npz", file), saved(tmp_path / "y.npz", make_file("augreg"))
    params = small(rep_size=32)
    pre_logits = {name: file[name] for name in ("pre_logits/kernel", "pre_logits/bias")}
    assert_loaded(load_pretrained(original, params), params, without(in_our_layout(file), "head") | pre_logits)
    refused(augreg, r"augreg layout.* it lacks pre_logits/bias, pre_logits/kernel$", params)


def test_bfloat16_is_read_though_numpy_writes_it_as_two_bytes_without_a_meaning(tmp_path):
    half = {name: array.astype(jnp.bfloat16) for name, array in in_our_layout(make_file("augreg")).items()}
    loaded = load_pretrained(saved(tmp_path / "half.npz", half), small())
    for name, leaf in flatten_dict(loaded, sep="/").items():
        np.testing.assert_array_equal(leaf, half[name].astype(np.float32))


def test_resizing_keeps_the_corners_and_halves_the_way_between():
    positions = np.array([[[0.0, 10], [4, 20], [8, 30], [20, 50]]])
    resized = resize_positions(positions, 3)
    assert resized.shape == (1, 9, 2)
    np.testing.assert_allclose(resized[0, :, 0], [0, 2, 4, 4, 8, 12, 8, 14, 20])
    np.testing.assert_allclose(resized[0, :, 1], [10, 15, 20, 20, 27.5, 35, 30, 40, 50])


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
            lambda file: make_file("augreg", "mu/8", image_size=24),
            r"are embedding/kernel \(8, 8, 3, 32\) \(4, 4, 3, 32\)$",
        ),
        (lambda file: file | {POSITIONS: np.zeros((1, 11, 32))}, r"are pos_embedding \(1, 11, 32\) \(1, 9, 32\)$"),
        (lambda file: without(file, "posembed_input"), r"no vision transformer .* are Transformer/.* \(39 in all\)$"),
        (lambda file: file | {"cls": np.zeros((1, 1, 32), np.int32)}, r"cannot be read .*: cls is of type int32$"),
        (
            lambda file: file | {"cls": np.full((1, 1, 32), np.nan)},
            r"cannot .*: cls is not finite in 32 of 32 entries$",
        ),
    ],
)
def test_a_file_that_does_not_fit(tmp_path, change, message):
    path = tmp_path / "x.npz"
    np.savez(path, allow_pickle=True, **change(make_file("augreg")))
    assert refused(path, message).startswith(f"{path} ")


def test_blocks_that_differ_or_are_missing_cannot_be_scanned(tmp_path):
    file = make_file("augreg") | {"Transformer/encoderblock_1/LayerNorm_0/bias": np.zeros(5)}
    differ = r"are Transformer/encoderblock_1/LayerNorm_0/bias \(5,\) \(32,\)$"
    refused(saved(tmp_path / "x.npz", file), differ, small(scan=True))
    # Though the others would fill the network.
    path = saved(tmp_path / "y.npz", without(make_file("augreg", depth=3), "encoderblock_1"))
    refused(path, r"it lacks Transformer/encoderblock_1/LayerNorm_0/bias, ", small(scan=True))


def test_files_that_are_not_of_arrays(tmp_path):
    def rejected(name, message):
        refused(tmp_path / name, message)

    rejected("nothing.npz", "is not a file")
    (tmp_path / "text.npz").write_text("no weights")
    rejected("text.npz", "cannot be read .*: File is not a zip file")
    whole = saved(tmp_path / "whole.npz", make_file("augreg")).read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    (tmp_path / "damaged.npz").write_bytes(damaged)
    rejected("damaged.npz", "cannot be read .*CRC")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as file:
        file.writestr("readme.txt", "no weights")
    rejected("other.npz", r"cannot be read .*: readme\.txt is not an array")
