"""Reads public files of vision transformers as parameters of `vit.py`, for another head and another resolution.

There are three layouts of `.npz` files, which have different keys:

- "original", of the paper (`gs://vit_models/imagenet21k/ViT-B_16.npz`): position embeddings
  `Transformer/posembed_input/pos_embedding` [1, 1 + N, D], the class token's first; the parts of a block are numbered
  through (`LayerNorm_0`, `MultiHeadDotProductAttention_1`, `LayerNorm_2`, `MlpBlock_3`); `pre_logits` precedes the
  head.
- "augreg", of Steiner et al. 2021 (`gs://vit_models/augreg/B_16-i21k-300ep-...npz`): the same without `pre_logits`.
- "big_vision" (`gs://big_vision/...npz`): the names of `vit.py`, below `params/` or `opt/target/` in a whole
  checkpoint, and with one `encoderblock` if the blocks were scanned.

N is the number of patches, D the width.
"""

import math
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import scipy.ndimage
from flax import traverse_util

from experiments.core.errors import UsageError
from experiments.core.training.experiment import Params
from experiments.vision import dinov2, download

Arrays = dict[str, np.ndarray]  # by the path in the tree of parameters, joined by slashes

_RENAMED = {  # by the name in the original layout, ours
    "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
    "LayerNorm_2": "LayerNorm_1",
    "MlpBlock_3": "MlpBlock_0",
    "Transformer/posembed_input/": "",
}
_PREFIXES = ("params/", "opt/target/")  # in checkpoints, which also hold the optimizer's state
# The last parts of the names of parameters.
_LEAVES = ("kernel", "bias", "scale", "query", "key", "value", "out", "cls", "probe", "pos_embedding")
_OPTIONAL = ("pre_logits", "cls")  # parts of a file that a network need not have
_SHOWN = 4


def load_pretrained(path: str | Path, shapes: Params) -> Params:
    """Returns the parameters of a network except its head, from a file.

    - `pre_logits` and the class token are read if the network has them. A file without a class token does not fit a
      network that has one.
    - Position embeddings are resized to the grid of the network (`resize_positions`).
    - Single blocks are stacked for a network with scanned ones, and scanned blocks are split for one with single ones.

    Args:
      path: an `.npz` file in one of the layouts above: a local path, or an address in `gs://` or `https://`, which is
        downloaded once; or "dinov2-s14", the file of an installed package (`dinov2.py`).
      shapes: the parameters of a `VisionTransformer` for square images, or their shapes.

    Returns:
      A tree of NumPy arrays with the structure, shapes and types of `shapes`, except the head.

    Raises:
      UsageError: the file cannot be obtained or read, or does not fit; the message names the parameters that do not.
    """
    wanted = {
        name: leaf for name, leaf in traverse_util.flatten_dict(shapes, sep="/").items() if not _is_of(name, "head")
    }
    parts = {name: _single_blocks(name, leaf.shape) for name, leaf in wanted.items()}
    needed = {part for names, _ in parts.values() for part in names}
    arrays, layout = (dinov2.load(), dinov2.NAME) if path == dinov2.NAME else read(path)
    arrays = {
        name: array
        for name, array in arrays.items()
        if not _is_of(name, "head") and (name in needed or not _is_of(name, *_OPTIONAL))
    }

    def require_none(problem: str, names: Collection[str]) -> None:
        if names:
            message = f"{path} (a file in the {layout} layout) does not fit the network: {problem}"
            raise UsageError(f"{message} {_listed(names)}")

    require_none("it lacks", needed - arrays.keys())
    require_none("the network has no", arrays.keys() - needed)
    positions, shape = arrays["pos_embedding"], wanted["pos_embedding"].shape
    if positions.ndim == 3 and positions.shape != shape and _grid_side(positions.shape[1]) and _grid_side(shape[1]):
        resize = dinov2.resize_positions if layout == dinov2.NAME else resize_positions
        arrays["pos_embedding"] = resize(positions, math.isqrt(shape[1]))
    pairs = [(name, shape) for names, shape in parts.values() for name in names]
    others = [f"{name} {arrays[name].shape} {shape}" for name, shape in pairs if arrays[name].shape != shape]
    require_none("of different shape there and here are", others)
    loaded = {
        name: np.stack([arrays[part] for part in parts[name][0]]).reshape(leaf.shape).astype(leaf.dtype)
        for name, leaf in wanted.items()
    }
    return traverse_util.unflatten_dict(loaded, sep="/")


def resize_positions(positions: np.ndarray, side: int) -> np.ndarray:
    """Interpolates position embeddings [1, N, D] of a square grid to [1, side^2, D].

    The interpolation is bilinear and keeps the corners in place (`scipy.ndimage.zoom` of order 1): 14 x 14 for 224
    pixels become 24 x 24 for 384. Both projects that publish the files do the same. vit_jax leaves out the class
    token's position meanwhile; big_vision first adds it to the class token, as `read` does. Both give the same network.
    """
    old = math.isqrt(positions.shape[1])
    grid = positions.reshape(old, old, -1).astype(np.float32)  # SciPy has no half precision
    return scipy.ndimage.zoom(grid, (side / old, side / old, 1), order=1).reshape(1, side**2, -1)


def read(path: str | Path) -> tuple[Arrays, str]:
    """Returns the parameters in a file, by the names of `vit.py` without `scan`, and its layout.

    Position embeddings are those of the patches alone; the class token's is added to the token, which gives the same
    network.

    Raises:
      UsageError: the file cannot be obtained or read, or is not in one of the layouts above.
    """
    arrays, layout = _split_blocks(_read(path)), "big_vision"
    if "pos_embedding" not in arrays:
        layout = "original" if "pre_logits/kernel" in arrays else "augreg"
        for theirs, ours in _RENAMED.items():
            arrays = {name.replace(theirs, ours): array for name, array in arrays.items()}
    if "pos_embedding" not in arrays:
        raise UsageError(
            f"{path} holds no vision transformer with learned position embeddings: its keys are {_listed(arrays)}"
        )
    cls, positions = arrays.get("cls"), arrays["pos_embedding"]
    # n^2 + 1 is never a square for n > 0, so nothing else looks like a grid and a class token.
    if cls is not None and positions.ndim == 3 and _grid_side(positions.shape[1] - 1):
        arrays["cls"] = cls.astype(np.float32) + positions[:, :1].astype(np.float32)
        arrays["pos_embedding"] = positions[:, 1:]
    return arrays, layout


def _single_blocks(name: str, shape: tuple[int, ...]) -> tuple[list[str], tuple[int, ...]]:
    """Returns the names of a scanned parameter in single blocks, and its shape there; or its own name and shape."""
    before, scanned, after = name.partition("/encoderblock/")
    if not scanned:
        return [name], shape
    return [f"{before}/encoderblock_{number}/{after}" for number in range(shape[0])], shape[1:]


def _split_blocks(arrays: Arrays) -> Arrays:
    """Returns the arrays with scanned blocks, if there are any, split into single ones."""
    result: Arrays = {}
    for name, array in arrays.items():
        names, _ = _single_blocks(name, np.atleast_1d(array).shape)
        result |= {name: array} if names == [name] else dict(zip(names, np.atleast_1d(array), strict=True))
    return result


def _read(path: str | Path) -> Arrays:
    """Returns the parameters in a file as floating-point numbers, by their names there."""
    local = download.fetch(str(path)) if str(path).startswith(download.SCHEMES) else Path(path).expanduser()
    if not local.is_file():
        raise UsageError(f"{path} is not a file: give the path of an .npz file, or an address in gs:// or https://")
    try:
        zipfile.ZipFile(local).close()  # explains what is wrong where np.load would try to read a pickle
        with np.load(local, allow_pickle=False) as file:
            prefix = next((each for each in _PREFIXES if any(key.startswith(each) for key in file.files)), "")
            keys = [key for key in file.files if key.startswith(prefix)]
            arrays = {key.removeprefix(prefix): _floating(file[key], key) for key in keys}
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        again = "" if local == Path(path).expanduser() else f" (remove {local}, and it is downloaded again)"
        raise UsageError(f"{path} cannot be read as an .npz file of parameters: {error}{again}") from error
    return {name: array for name, array in arrays.items() if array is not None}


def _floating(array: np.ndarray, key: str) -> np.ndarray | None:
    """Returns a parameter as floating-point numbers, or None for other arrays of integers, such as a count of steps."""
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{key} is not an array")
    if array.dtype == np.dtype("V2"):  # NumPy's reading of bfloat16
        array = array.view(jnp.bfloat16).astype(np.float32)
    if np.issubdtype(array.dtype, np.integer) and key.rpartition("/")[2] not in _LEAVES:
        return None
    if not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"{key} is of type {array.dtype}")
    if not np.isfinite(array).all():
        raise ValueError(f"{key} is not finite in {np.count_nonzero(~np.isfinite(array))} of {array.size} entries")
    return array


def _is_of(name: str, *parts: str) -> bool:
    return name.partition("/")[0] in parts


def _listed(names: Collection[str]) -> str:
    """Writes the first few names, and the number of all."""
    shown = ", ".join(sorted(names)[:_SHOWN])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > _SHOWN else shown


def _grid_side(num_patches: int) -> int:
    """Returns the side of a square grid with that many patches, or 0 if there is none."""
    side = math.isqrt(num_patches)
    return side if side**2 == num_patches else 0
