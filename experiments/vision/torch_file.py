"""The tensors of a file in torch's format before 1.6, as arrays, without torch.

Such a file is five pickles (a magic number, the version, the sizes of C's integers, the object, the keys of its
storages) and then the storages: for each the number of its elements, 8 bytes, and the elements. A pickle may call
whatever Python can import; here it gets a dictionary and tensors, and nothing else.
"""

import collections
import pickle
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

_DTYPES = {"FloatStorage": "<f4", "LongStorage": "<i8"}  # parameters, and counters of steps


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO):
        super().__init__(file)
        self.storages: dict[str, np.ndarray] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _DTYPES:
            return np.dtype(_DTYPES[name])
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no part of a tensor")

    def persistent_load(self, pid: Any) -> np.ndarray:
        _, dtype, key, _, size, _ = pid
        return self.storages.setdefault(key, np.empty(size, dtype))


def _tensor(storage: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any) -> np.ndarray:
    """A view of the storage, whose elements are read later; NumPy refuses one that does not lie in it."""
    size = storage.itemsize
    return np.ndarray(shape, storage.dtype, storage.data, offset * size, [stride * size for stride in strides])


def read(path: Path) -> dict[str, np.ndarray]:
    """Returns the tensors by name.

    Args:
      path: of a file that is known to hold a dictionary from strings to tensors (a `state_dict`), by its checksum: no
        other is given a message of its own.

    Raises:
      pickle.UnpicklingError: it asks for something else.
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
