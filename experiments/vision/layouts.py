"""The public files of vision transformers, read as the parameters of `vit.py` by name.

Three layouts of `.npz` files are known, and told apart by their keys:

- "original", of the paper (`gs://vit_models/imagenet21k/ViT-B_16.npz`): position embeddings
  `Transformer/posembed_input/pos_embedding` [1, 1 + N, D], of which the first is the class token's;
  the parts of a block are numbered through (`LayerNorm_0`, `MultiHeadDotProductAttention_1`,
  `LayerNorm_2`, `MlpBlock_3`); and `pre_logits` in front of the head.
- "augreg", of Steiner et al. 2021 (`gs://vit_models/augreg/B_16-i21k-300ep-...npz`): the same
  without `pre_logits`.
- "big_vision" (`gs://big_vision/...npz`): the names of `vit.py`, under `params/` or `opt/target/`
  if the file is a whole checkpoint, and with one `encoderblock` if its blocks were scanned.

`N` patches, `D` width.
"""

import math
import re
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from experiments.core.errors import UsageError
from experiments.vision import download

Arrays = dict[str, np.ndarray]  # by name: the path in the tree of parameters, joined by slashes

_RENAMED = {  # the parts of a block, in the original layout and in ours
    "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
    "LayerNorm_2": "LayerNorm_1",
    "MlpBlock_3": "MlpBlock_0",
}
_ORIGINAL_POSITIONS = "Transformer/posembed_input/pos_embedding"
_PREFIXES = ("params/", "opt/target/")  # in checkpoints, which hold the optimizer's state too
# What parameters are called last.
_LEAVES = ("kernel", "bias", "scale", "query", "key", "value", "out", "cls", "probe", "pos_embedding")
_SHOWN = 4


def read(path: str | Path) -> tuple[Arrays, str]:
    """The parameters in a file, under the names of `vit.py` without `scan`, and its layout.

    Position embeddings are those of the patches alone: what the class token was given is added to
    the token itself, which is the same network.

    Args:
      path: local, or one that `download.fetch` takes.

    Raises:
      UsageError: the file cannot be obtained or read, or is not in one of the layouts above.
    """
    arrays = split_blocks(_read(path))
    if _ORIGINAL_POSITIONS in arrays:
        layout = "original" if "pre_logits/kernel" in arrays else "augreg"
        arrays = {_our_name(name): array for name, array in arrays.items()}
    elif "pos_embedding" in arrays:
        layout = "big_vision"
    else:
        raise UsageError(
            f"{path} holds no vision transformer with learned position embeddings: its keys are {listed(arrays)}"
        )
    return _with_positions_of_patches(arrays), layout


def split_blocks(arrays: Arrays) -> Arrays:
    """Scanned blocks, if there are any, as single ones."""
    result = {}
    for name, array in arrays.items():
        before, scanned, after = name.partition("/encoderblock/")
        if scanned:
            for number, value in enumerate(np.atleast_1d(array)):
                result[f"{before}/encoderblock_{number}/{after}"] = value
        else:
            result[name] = array
    return result


def stack_blocks(arrays: Arrays) -> Arrays:
    """Single blocks, numbered from 0, as scanned ones.

    Raises:
      UsageError: the blocks are not alike, or some are missing among them.
    """
    result: Arrays = {}
    blocks: dict[str, dict[int, np.ndarray]] = {}
    for name, array in arrays.items():
        if match := re.fullmatch(r"(.*)/encoderblock_(\d+)/(.*)", name):
            before, number, after = match.groups()
            blocks.setdefault(f"{before}/encoderblock/{after}", {})[int(number)] = array
        else:
            result[name] = array
    depth = 1 + max((number for numbered in blocks.values() for number in numbered), default=-1)
    for name, numbered in blocks.items():
        if missing := [number for number in range(depth) if number not in numbered]:
            lacking = [name.replace("/encoderblock/", f"/encoderblock_{number}/") for number in missing]
            raise UsageError(f"blocks of which some are missing cannot be scanned: there is no {listed(lacking)}")
        shapes = {array.shape for array in numbered.values()}
        if len(shapes) > 1:
            raise UsageError(
                f"blocks with a {name} of shapes {listed([str(shape) for shape in shapes])} cannot be scanned"
            )
        result[name] = np.stack([numbered[number] for number in range(depth)])
    return result


def listed(names: Collection[str]) -> str:
    """The first few names, and how many there are."""
    shown = ", ".join(sorted(names)[:_SHOWN])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > _SHOWN else shown


def grid_side(num_patches: int) -> int | None:
    """The side of a square grid of so many patches, at least one, if there is such a grid."""
    side = math.isqrt(num_patches)
    return side if side**2 == num_patches > 0 else None


def _read(path: str | Path) -> Arrays:
    local = download.fetch(str(path)) if str(path).startswith(download.SCHEMES) else Path(path).expanduser()
    if not local.is_file():
        raise UsageError(f"{path} is not a file: give the path of an .npz file, or an address in gs:// or https://")
    try:
        zipfile.ZipFile(local).close()  # says what is wrong with a file that np.load would take for a pickle
        with np.load(local, allow_pickle=False) as file:
            arrays = {name: _floating(file[key], key) for name, key in _parameters(file.files).items()}
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        again = "" if local == Path(path).expanduser() else f" (remove {local}, and it is downloaded again)"
        raise UsageError(f"{path} cannot be read as an .npz file of parameters: {error}{again}") from error
    return {name: array for name, array in arrays.items() if array is not None}


def _parameters(keys: list[str]) -> dict[str, str]:
    """The keys of the parameters in the file, by their names."""
    for prefix in _PREFIXES:
        if any(key.startswith(prefix) for key in keys):
            return {key.removeprefix(prefix): key for key in keys if key.startswith(prefix)}
    return {key: key for key in keys}


def _floating(array: np.ndarray, key: str) -> np.ndarray | None:
    """A parameter as floating-point numbers; None for integers of another name, which count steps, say."""
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{key} is not an array")
    if array.dtype == np.dtype("V2"):  # what NumPy makes of bfloat16, which it does not know
        array = array.view(jnp.bfloat16).astype(np.float32)
    if np.issubdtype(array.dtype, np.integer) and key.rpartition("/")[2] not in _LEAVES:
        return None
    if not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"{key} is of type {array.dtype}")
    if not np.isfinite(array).all():
        raise ValueError(f"{key} is not finite in {np.count_nonzero(~np.isfinite(array))} of {array.size} entries")
    return array


def _our_name(name: str) -> str:
    if name == _ORIGINAL_POSITIONS:
        return "pos_embedding"
    return "/".join(_RENAMED.get(part, part) for part in name.split("/"))


def _with_positions_of_patches(arrays: Arrays) -> Arrays:
    """Adds the position embedding of the class token, if there is one, to the token."""
    cls, positions = arrays.get("cls"), arrays["pos_embedding"]
    # n^2 + 1 is never a square for n > 0, so nothing else looks like a grid and a class token.
    if cls is None or positions.ndim != 3 or grid_side(positions.shape[1] - 1) is None:
        return arrays
    first, patches = positions[:, :1].astype(np.float32), positions[:, 1:]
    if cls.shape != first.shape:
        return arrays
    return arrays | {"cls": cls.astype(np.float32) + first, "pos_embedding": patches}
