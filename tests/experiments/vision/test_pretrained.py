"""Files in each public layout, and files that do not fit."""

import functools
import re
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from experiments.core.errors import UsageError
from experiments.vision import vit
from experiments.vision.pretrained import load_pretrained, resize_positions
from tests.experiments.vision.numpy_vit import stacked, without

# Parts of a block are numbered through in the public files.
THEIRS = {
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}


@functools.cache
def small(image_size=12, variant="mu/4", **options):
    model = vit.make(variant, 7, **{"depth": 2} | options)
    params = jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, image_size, image_size, 3), np.float32))
    return params["params"]


def parameters(**options):
    """Those of `small` by name, different in every number."""
    rng = np.random.default_rng(0)
    shapes = flatten_dict(small(**options), sep="/")
    return {name: rng.normal(size=leaf.shape).astype(np.float16).astype(np.float32) for name, leaf in shapes.items()}


def public(params):
    """The arrays of a file with these parameters: "original" if there are pre_logits, else "augreg"."""
    file = {re.sub("|".join(THEIRS), lambda ours: THEIRS[ours[0]], name): array for name, array in params.items()}
    positions = np.pad(file.pop("pos_embedding"), ((0, 0), (1, 0), (0, 0)), constant_values=1)  # the first, the token's
    return file | {"cls": params["cls"] - 1, "Transformer/posembed_input/pos_embedding": positions}


def refused(path, message, params=None):
    with pytest.raises(UsageError, match=message):
        load_pretrained(path, small() if params is None else params)


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
def test_all_public_layouts_can_be_loaded(tmp_path, pool, scan):
    """Refuses a file without a class token where the network has one."""
    ours, original = parameters(), parameters(rep_size=32)
    averaged = without(ours, "cls")
    files = {
        "augreg": (public(ours), ours),
        "original": (public(original), without(original, "pre_logits")),
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


def test_pre_logits_are_loaded_but_no_head(tmp_path):
    ours = parameters(rep_size=32)
    original, augreg = saved(tmp_path / "x.npz", public(ours)), saved(tmp_path / "y.npz", public(parameters()))
    params = small(rep_size=32)
    assert_loaded(load_pretrained(original, params), params, without(ours, "head"))
    refused(augreg, r"augreg layout.* it lacks pre_logits/bias, pre_logits/kernel$", params)


def test_bfloat16_files_are_read(tmp_path):
    """Reads what NumPy stores as two bytes without a meaning."""
    half = {name: array.astype(jnp.bfloat16) for name, array in parameters().items()}
    loaded = load_pretrained(saved(tmp_path / "half.npz", half), small())
    for name, leaf in flatten_dict(loaded, sep="/").items():
        np.testing.assert_array_equal(leaf, half[name].astype(np.float32))


def test_positions_are_resized_linearly(tmp_path):
    positions = np.array([[[0.0, 10], [4, 20], [8, 30], [20, 50]]])
    resized = resize_positions(positions, 3)
    assert resized.shape == (1, 9, 2)
    np.testing.assert_allclose(resized[0, :, 0], [0, 2, 4, 4, 8, 12, 8, 14, 20])
    np.testing.assert_allclose(resized[0, :, 1], [10, 15, 20, 20, 27.5, 35, 30, 40, 50])
    expected = without(parameters(), "head")
    path = saved(tmp_path / "x.npz", public(parameters()))
    expected["pos_embedding"] = resize_positions(expected["pos_embedding"], 6)
    assert_loaded(load_pretrained(path, small(24)), small(24), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda file: without(file, "MlpBlock_3"),
            r"it lacks Transformer/encoderblock_0/MlpBlock_0/Dense_0/bias, .*Dense_1/kernel, \.\.\. \(8 in all\)$",
        ),
        (lambda file: file | {"extra/kernel": np.zeros(2)}, r"the network has no extra/kernel$"),
        (lambda file: public(parameters(image_size=24, variant="mu/8")), r"are embedding/kernel \(8, 8, 3, 32\) \(4, "),
        (lambda file: without(file, "posembed_input"), r"no vision transformer .* are Transformer/.* \(39 in all\)$"),
        (lambda file: file | {"cls": np.full((1, 1, 32), np.nan)}, r"cls is not finite in 32 of 32 entries$"),
    ],
)
def test_a_file_that_does_not_fit(tmp_path, change, message):
    path = saved(tmp_path / "x.npz", change(public(parameters())))
    refused(path, f"^{path} .*{message}")


def test_scan_refuses_mismatched_blocks(tmp_path):
    file = public(parameters()) | {"Transformer/encoderblock_1/LayerNorm_0/bias": np.zeros(5)}
    differ = r"are Transformer/encoderblock_1/LayerNorm_0/bias \(5,\) \(32,\)$"
    refused(saved(tmp_path / "x.npz", file), differ, small(scan=True))
    # Though the others would fill the network.
    path = saved(tmp_path / "y.npz", without(public(parameters(depth=3)), "encoderblock_1"))
    refused(path, r"it lacks Transformer/encoderblock_1/LayerNorm_0/bias, ", small(scan=True))


def test_files_that_are_not_of_arrays(tmp_path):
    """Damaged ones are in test_download.py."""
    refused(tmp_path / "nothing.npz", "is not a file")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as file:
        file.writestr("readme.txt", "no weights")
    refused(tmp_path / "other.npz", r"cannot be read .*: readme\.txt is not an array")
