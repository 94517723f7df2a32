"""Pretrained weights in the place of fresh ones, for another head and another resolution."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import numpy as np
import scipy.ndimage

from experiments.core.errors import UsageError
from experiments.core.training.experiment import Params
from experiments.vision import layouts

_OPTIONAL = ("pre_logits", "cls")  # parts of a file that a network may do without


def load_pretrained(path: str | Path, params: Params) -> Params:
    """`params` with the weights of a file in their place.

    - The head stays that of `params`, which is 0 in a fresh network.
    - `pre_logits` is taken from the file if `params` have one, and left out if they have not.
    - So is the class token. A file without one does not fit `params` with one.
    - Position embeddings are resized to the grid of `params`, by `resize_positions`.
    - Single blocks are stacked where `params` have scanned ones, and the other way round.

    Not to be called under `jit`, where the weights would become constants of the program.

    Args:
      path: an `.npz` file in one of the layouts of `layouts.py`: a local path, or an address in
        `gs://` or `https://`, which is downloaded once.
      params: of a `VisionTransformer` for square images: arrays, or `jax.ShapeDtypeStruct` in the
        place of those that come from the file.

    Returns:
      A tree with the structure, shapes, types and shardings of `params`.

    Raises:
      UsageError: the file cannot be obtained or read, or does not fit; the message names what does not.
      ValueError: the head, which does not come from the file, is a `jax.ShapeDtypeStruct`.
    """
    wanted = {_name(at): leaf for at, leaf in jax.tree_util.tree_leaves_with_path(params)}
    arrays, layout = layouts.read(path)
    if any("/encoderblock/" in name for name in wanted):
        arrays = layouts.stack_blocks(arrays)

    def require_none(problem: str, names: Collection[str]) -> None:
        if names:
            message = f"{path} (a file in the {layout} layout) does not fit the network: {problem}"
            raise UsageError(f"{message} {layouts.listed(names)}")

    wanted = {name: leaf for name, leaf in wanted.items() if _part(name) != "head"}
    arrays = {
        name: array
        for name, array in arrays.items()
        if _part(name) != "head" and (name in wanted or _part(name) not in _OPTIONAL)
    }
    require_none("it lacks", wanted.keys() - arrays.keys())
    require_none("the network has no", arrays.keys() - wanted.keys())
    arrays["pos_embedding"] = _resized_if_possible(arrays["pos_embedding"], wanted["pos_embedding"].shape)
    wrong = [name for name, leaf in wanted.items() if arrays[name].shape != tuple(leaf.shape)]
    require_none(
        "of different shape there and here are",
        [f"{name} {arrays[name].shape} {tuple(wanted[name].shape)}" for name in wrong],
    )

    def loaded(at: tuple[Any, ...], leaf: Any) -> Any:
        if (name := _name(at)) not in wanted:
            if isinstance(leaf, jax.ShapeDtypeStruct):
                raise ValueError(f"params must hold an array for {name}, which does not come from the file")
            return leaf
        return jax.device_put(arrays[name].astype(leaf.dtype), getattr(leaf, "sharding", None))

    return jax.tree_util.tree_map_with_path(loaded, params)


def resize_positions(positions: np.ndarray, side: int) -> np.ndarray:
    """Position embeddings [1, N, D] of a square grid, interpolated to [1, side^2, D].

    Bilinearly, and so that the corners of both grids are in the same places (`scipy.ndimage.zoom` of order 1): 14 x 14
    for 224 pixels become 24 x 24 for 384. Both projects that the files come from do just this to the grid. vit_jax
    keeps the class token's position aside meanwhile, and puts it back in front; big_vision has added it to the class
    token before, as `layouts.read` does. The network is the same either way.
    """
    old = layouts.grid_side(positions.shape[1])
    if old is None:
        raise ValueError(f"positions must be those of a square grid, got shape {positions.shape}")
    grid = positions.reshape(old, old, -1).astype(np.float32)  # SciPy has no half precision
    return scipy.ndimage.zoom(grid, (side / old, side / old, 1), order=1).reshape(1, side**2, -1)


def _resized_if_possible(positions: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`positions` as they are, if they fit or if no resizing makes them fit."""
    if positions.ndim != 3 or positions.shape[1] == shape[1] or positions.shape[2] != shape[2]:
        return positions
    old, new = layouts.grid_side(positions.shape[1]), layouts.grid_side(shape[1])
    return positions if old is None or new is None else resize_positions(positions, new)


def _name(at: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(at, simple=True, separator="/")


def _part(name: str) -> str:
    return name.partition("/")[0]
