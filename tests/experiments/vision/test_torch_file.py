"""Files of torch's old format, written here without torch: what they hold, and that they run nothing."""

import collections
import pickle
import struct
import sys
import types

import numpy as np
import pytest

from experiments.vision import efficientnet_weights

FLOATS, COUNT = np.arange(12, dtype="<f4"), np.array([7], "<i8")
# What torch's files name, by where they name it.
NAMED = {"_rebuild_tensor_v2": "torch._utils", "FloatStorage": "torch", "LongStorage": "torch"}
TORCH = types.SimpleNamespace(**{name: type(name, (), {"__module__": module}) for name, module in NAMED.items()})


class Tensor:
    """Pickled as torch does it."""

    def __init__(self, key, kind, size, offset, shape, strides):
        self.storage = types.SimpleNamespace(pid=("storage", kind, key, "cpu", size, None))
        self.rest = (offset, shape, strides, False, collections.OrderedDict())

    def __reduce__(self):
        return TORCH._rebuild_tensor_v2, (self.storage, *self.rest)


class Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        return getattr(obj, "pid", None)


def test_tensors_are_what_they_were(tmp_path, monkeypatch):
    for module in NAMED.values():
        monkeypatch.setitem(sys.modules, module, TORCH)
    tensors = collections.OrderedDict(
        whole=Tensor("a", TORCH.FloatStorage, 12, 0, (3, 4), (4, 1)),
        turned=Tensor("a", TORCH.FloatStorage, 12, 2, (2, 5), (1, 2)),
        count=Tensor("b", TORCH.LongStorage, 1, 0, (), ()),
    )
    path = tmp_path / "weights.pth"
    with path.open("wb") as file:
        for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, tensors, ["b", "a"]):
            Pickler(file, protocol=2).dump(part)
        for storage in (COUNT, FLOATS):
            file.write(struct.pack("<q", len(storage)) + storage.tobytes())
    found = efficientnet_weights.read(path)
    assert list(found) == ["whole", "turned", "count"]
    np.testing.assert_array_equal(found["whole"], FLOATS.reshape(3, 4))
    np.testing.assert_array_equal(found["turned"], FLOATS[2:].reshape(5, 2).T)
    assert (found["count"], found["count"].dtype) == (7, np.int64)


def test_nothing_else_is_called(tmp_path):
    path = tmp_path / "weights.pth"
    path.write_bytes(b"cos\nsystem\n(S'touch %s'\ntR." % str(tmp_path / "touched").encode())
    with pytest.raises(KeyError, match="system"):
        efficientnet_weights.read(path)
    assert not (tmp_path / "touched").exists()
