"""Arrays from a file that torch has saved in its old format, without torch and without executing anything.

Before version 1.6 `torch.save` wrote five pickles one after the other (a magic number, the version of the format, the
sizes of C's integers, the object itself, the names of its storages) and then the storages: for each the number of its
elements, 8 bytes, and the elements, all in little-endian order. A pickle is a program, and may call whatever Python can
import. Here `pickletools` takes it apart, and the few instructions that a dictionary of tensors needs are carried out
on plain values: there is nothing that a file could make run. Sizes are checked before they are believed.
"""

import dataclasses
import io
import math
import pickletools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.errors import UsageError

_MAGIC_NUMBER, _VERSION = 0x1950A86A20F9469CFC6C, 1001
_PICKLES = 2**20  # bytes that the five may take: a thousand tensors take a seventh of that
_AXES = 16  # at most, of a tensor
_DTYPES = {
    "torch DoubleStorage": "<f8",
    "torch FloatStorage": "<f4",
    "torch HalfStorage": "<f2",
    "torch LongStorage": "<i8",
    "torch IntStorage": "<i4",
    "torch ShortStorage": "<i2",
    "torch CharStorage": "<i1",
    "torch ByteStorage": "<u1",
    "torch BoolStorage": "?",
}
_DICT, _TENSOR = "collections OrderedDict", "torch._utils _rebuild_tensor_v2"
# A bool is an int for Python; NEWTRUE and NEWFALSE are the only instructions that make one.
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_ARGUMENTS = ("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE")
_EMPTY: dict[str, Any] = {"EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Refused(Exception):
    """What is wrong with a file, in a few words."""


@dataclasses.dataclass(frozen=True)
class _Name:
    """What a pickle would import."""

    name: str


@dataclasses.dataclass(frozen=True)
class _Storage:
    key: str
    dtype: str
    size: int


@dataclasses.dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    order: tuple[int, ...]  # its axes, from that of the longest stride on


def read(path: Path) -> dict[str, np.ndarray]:
    """The tensors by name, as arrays that cannot be written to.

    Args:
      path: of a file that holds a dictionary from strings to tensors alone (a `state_dict`). The elements of each lie
        side by side in its storage, in any order of the axes.

    Raises:
      UsageError: it holds anything else, or is cut short; the message names the file and what is wrong.
      OSError: it cannot be read.
    """
    try:
        return _tensors(path.read_bytes())
    except _Refused as error:
        raise UsageError(f"{path} is no file of tensors in torch's format before 1.6: {error}") from error


def _tensors(content: bytes) -> dict[str, np.ndarray]:
    pickles = io.BytesIO(content[:_PICKLES])
    if _load(pickles) != _MAGIC_NUMBER:
        raise _Refused("it does not begin with the magic number")
    if _load(pickles) != _VERSION:
        raise _Refused(f"the version is not {_VERSION}")
    system = _load(pickles)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise _Refused("it is not in little-endian order")
    tensors, keys = _load(pickles), _load(pickles)
    if not isinstance(tensors, dict) or not all(isinstance(value, _Tensor) for value in tensors.values()):
        raise _Refused("it holds something else than a dictionary of tensors")
    storages = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    if any(storages[tensor.storage.key] != tensor.storage for tensor in tensors.values()):
        raise _Refused("two tensors do not agree on the storage they share")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or sorted(keys) != sorted(storages):
        raise _Refused("the list of its storages is not that of its tensors")
    found = _storages(content, pickles.tell(), [storages[key] for key in keys])
    return {name: _view(tensor, found) for name, tensor in tensors.items()}


def _storages(content: bytes, start: int, storages: list[_Storage]) -> dict[str, np.ndarray]:
    """The elements by key, from the bytes behind `start`, which must be just as many."""
    found = {}
    for storage in storages:
        size = int.from_bytes(content[start : start + 8], "little")
        end = start + 8 + storage.size * np.dtype(storage.dtype).itemsize
        if size != storage.size or end > len(content):
            raise _Refused(f"storage {storage.key!r} does not have the {storage.size} elements that its tensors need")
        found[storage.key] = np.frombuffer(content, storage.dtype, storage.size, start + 8)
        start = end
    if start != len(content):
        raise _Refused(f"{len(content) - start} bytes follow the last storage")
    return found


def _view(tensor: _Tensor, storages: Mapping[str, np.ndarray]) -> np.ndarray:
    end = tensor.offset + math.prod(tensor.shape)
    lying = storages[tensor.storage.key][tensor.offset : end].reshape([tensor.shape[axis] for axis in tensor.order])
    return lying.transpose(np.argsort(tensor.order)) if tensor.order else lying


def _load(file: io.BytesIO) -> Any:
    """The value of the next pickle.

    Raises:
      _Refused: it is none of the few values that can be in a file of tensors.
    """
    try:
        return _run(file)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        # Instructions that are cut short, take what is not there, or are put to values of another kind.
        raise _Refused("one of its pickles is damaged") from error


def _run(file: io.BytesIO) -> Any:
    stack: list[Any] = []
    below: list[list[Any]] = []  # stacks that marks have put aside
    memo: dict[Any, Any] = {}
    for instruction, argument, _ in pickletools.genops(file):
        name = instruction.name
        if name in _ARGUMENTS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "MARK":
            below.append(stack)
            stack = []
        elif name in ("TUPLE", "APPENDS", "SETITEMS"):
            items, stack = stack, below.pop()
            _put(name, stack, items)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            _put("SETITEMS", stack, [key, value])
        elif name in _TUPLES:
            number = _TUPLES[name]
            stack[-number:] = [tuple(stack[-number:])]
        elif name == "GLOBAL":
            stack.append(_known(str(argument)))
        elif name == "BINPERSID":
            stack.append(_storage(*stack.pop()))
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            stack.append(_call(function, arguments))
        elif name == "BUILD":
            # What a dictionary of torch has besides its entries: the versions of layers. Left out.
            state, target = stack.pop(), stack[-1]
            if not (isinstance(state, dict) and isinstance(target, dict)):
                raise _Refused("it sets the state of an object")
        elif name == "STOP":
            (value,) = stack
            return value
        elif name != "PROTO":
            raise _Refused(f"one of its pickles has the instruction {name}, which tensors do not need")
    raise _Refused("one of its pickles does not end")


def _put(name: str, stack: list[Any], items: list[Any]) -> None:
    if name == "TUPLE":
        stack.append(tuple(items))
        return
    target = stack[-1]
    if name == "APPENDS" and isinstance(target, list):
        target.extend(items)
    elif name == "SETITEMS" and isinstance(target, dict) and all(isinstance(key, str) for key in items[::2]):
        target.update(zip(items[::2], items[1::2], strict=True))
    else:
        raise _Refused("it puts entries into something else than a list, or a dictionary by strings")


def _known(name: str) -> _Name:
    if name not in (_DICT, _TENSOR, *_DTYPES):
        raise _Refused(f"it asks for {name.replace(' ', '.')!r}, which is no part of a tensor")
    return _Name(name)


def _storage(kind: Any, dtype: Any, key: Any, device: Any, size: Any, view: Any) -> _Storage:
    del device
    # In that order: only a string is compared with, and only what is a `_Name` has a name.
    if not (isinstance(kind, str) and kind == "storage" and isinstance(key, str) and view is None):
        raise _Refused("it refers to something else than a storage")
    if not (isinstance(dtype, _Name) and dtype.name in _DTYPES):
        raise _Refused("a storage has no type")
    return _Storage(key, _DTYPES[dtype.name], _whole(size))


def _call(function: Any, arguments: Any) -> Any:
    if not isinstance(function, _Name) or not isinstance(arguments, tuple):
        raise _Refused("it calls something that is no function")
    if function.name == _DICT and not arguments:
        return {}
    if function.name != _TENSOR:
        raise _Refused(f"it calls {function.name.replace(' ', '.')!r} with arguments")
    storage, offset, shape, strides, *_ = arguments
    if not isinstance(storage, _Storage) or not isinstance(shape, tuple) or not isinstance(strides, tuple):
        raise _Refused("a tensor lacks its storage or its shape")
    if len(shape) > _AXES:
        raise _Refused(f"a tensor has {len(shape)} axes")
    sizes, steps = tuple(map(_whole, shape)), tuple(map(_whole, strides))
    # Axes may be in another order than their elements lie in the storage, as after a transposition.
    order = tuple(sorted(range(len(sizes)), key=lambda axis: (-steps[axis], axis)))
    dense = [math.prod(sizes[axis] for axis in order[place + 1 :]) for place in range(len(order))]
    if len(steps) != len(sizes) or any(steps[axis] != wanted for axis, wanted in zip(order, dense, strict=True)):
        raise _Refused(f"a tensor of shape {sizes} with strides {steps[:_AXES]} has gaps or overlaps")
    if _whole(offset) + math.prod(sizes) > storage.size:
        raise _Refused(f"a tensor of shape {sizes} needs more than the {storage.size} elements of its storage")
    return _Tensor(storage, offset, sizes, order)


def _whole(value: Any) -> int:
    # The text of anything but a number may be endless: a tuple of the same tuple twice, and so on.
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Refused(f"a size is of type {type(value).__name__}")
    if not 0 <= value < 2**48:
        raise _Refused(f"a size is {value}")
    return value
